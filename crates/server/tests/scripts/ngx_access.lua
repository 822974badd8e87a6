-- The access phase of openresty_scripts_run_unchanged.scene.
if not ngx.var.http_authorization then
  ngx.header.www_authenticate = "Basic"
  return ngx.exit(ngx.HTTP_UNAUTHORIZED)
end
ngx.ctx.user = "u"
ngx.req.set_header("X-User", ngx.ctx.user)
