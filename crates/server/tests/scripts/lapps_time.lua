-- A standalone service of LAppS, for lapps_services_run_unchanged.scene: broadcasts that time passes.
lapps_time = {}

lapps_time.init = function()
  bcast:create(1000)
  lapps_time.nap = nap:new()
end

lapps_time.run = function()
  local notice = nljson.decode([[{ "cid" : 5, "message" : [ "" ] }]])
  local began = time.now()
  while not must_stop() do
    lapps_time.nap:usleep(20000)
    notice.message[1] = time.now() > began and "later" or "now"
    bcast:send(1000, notice)
  end
end

return lapps_time
