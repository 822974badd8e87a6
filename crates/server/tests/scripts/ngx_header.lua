-- The header filter of openresty_scripts_run_unchanged.scene.
ngx.header.x_user = ngx.ctx.user
ngx.header.server = nil
