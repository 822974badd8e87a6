-- Sends the files of the folder `public`.
return {
  on_request = function(request, response)
    if request.query.read then
      local text, err = tide.files.read(request.query.read, tonumber(request.query.most))
      return response:finish(text or "error: " .. err)
    end
    if request.query.own then response:header("Content-Type", "text/plain") end
    if request.query.status then response:status(tonumber(request.query.status)) end
    local ok, err = response:file(request.path:sub(2))
    if not ok then response:status(404):finish("no " .. request.path .. ": " .. err) end
  end,
}
