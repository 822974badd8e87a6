-- Code whose on_start fails.
return {
  on_start = function() error("no database") end,
  on_request = function(request, response) response:finish("never") end,
}
