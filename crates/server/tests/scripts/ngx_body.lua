-- The body filter of openresty_scripts_run_unchanged.scene.
ngx.arg[1] = ngx.arg[1]:upper()
if ngx.arg[2] then ngx.arg[1] = ngx.arg[1] .. "!" end
