-- Tells which user the authentication server has named, and the body of the request.
return {
  on_request = function(request, response)
    response:finish((request.headers["x-user"] or "nobody") .. ": " .. request.body)
  end,
}
