-- The application of lua_log_hooks_wait.scene.
return {
  on_log = function(record)
    tide.sleep(0.01)
    tide.http.request { pool = "collector", path = "/log", query = { status = record.status } }
  end,
}
