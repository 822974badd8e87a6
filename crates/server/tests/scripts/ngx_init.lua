-- The init phase of openresty_scripts_run_unchanged.scene.
limit = " of 5"
