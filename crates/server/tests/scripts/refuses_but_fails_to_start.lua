-- Code that refuses every request, and whose on_start fails.
return {
  on_start = function() error("no database") end,
  on_access = function(request, response) response:status(403):finish("refused") end,
}
