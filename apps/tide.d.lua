---@meta
-- The interface of Tidegate's Lua applications for the Lua language server (LuaLS). Add the folder of this file to the
-- libraries of the language server; nothing is executed. The functions are described in docs/lua.md.

---A request. Its fields are read when they are used.
---@class tide.Request
---@field method string
---@field path string The path as the client sent it, or as `on_access` has changed it; without the query.
---@field query table<string, string|string[]> Decoded arguments.
---@field query_string? string The query as the client sent it.
---@field host? string
---@field scheme "http"|"https"
---@field version string
---@field client string The client's address.
---@field user? string The user that `auth` of the route has verified.
---@field headers table<string, string|string[]> Names in lower case.
---@field params table<string, string> The segments that match `{name}` in the route's path.
---@field body string
local request = {}

---One field; several values are joined by commas.
---@param name string
---@return string? value
function request:header(name) end

---@return any value
---@return string? error
function request:json() end

---The arguments of an `application/x-www-form-urlencoded` body.
---@return table<string, string|string[]>
function request:form() end

---In `on_upload`: the next piece of the body, which it waits for; nil at the end.
---@return string? data
---@return string? error
function request:read() end

---In `on_upload`: the whole body.
---@param most? integer Bytes (1 MiB).
---@return string? body
---@return string? error
---@return string? part What was read of a body that is too large.
function request:read_all(most) end

---In `on_access`: the server gets this field in place of received ones; nil removes it.
---@param name string
---@param value? string|number|boolean|(string|number)[]
---@return tide.Request
function request:set_header(name, value) end

---In `on_access`: replaces the method. HEAD, CONNECT and TRACE can be neither replaced nor set.
---@param method string
---@return tide.Request
function request:set_method(method) end

---In `on_access`: replaces the host.
---@param host string With a port if one is needed.
---@return tide.Request
function request:set_host(host) end

---In `on_access`: replaces the path.
---@param path string Percent-encoded, without the query.
---@return tide.Request
function request:set_path(path) end

---In `on_access`: replaces the query; nil removes it.
---@param query? string|table<string, any>
---@return tide.Request
function request:set_query(query) end

---In `on_access`: chooses one of the pools that `hooks` of the route lists.
---@param name string
---@return tide.Request
function request:set_pool(name) end

---A response. Methods return nil and an error once it has ended.
---@class tide.Response
local response = {}

---@param code integer 200 to 599
---@return tide.Response
function response:status(code) end

---@param name string
---@param value? string|number|(string|number)[] A list repeats the field, nil removes it.
---@return tide.Response
function response:header(name, value) end

---@param ... string|number
---@return tide.Response?
---@return string? error
function response:write(...) end

---Sends what was written, and waits until the client has read it.
---@return tide.Response?
---@return string? error
function response:flush() end

---@param data? string|number
---@return boolean?
---@return string? error
function response:finish(data) end

---Ends the exchange without a response: closes the connection, or resets the stream of HTTP/2.
---@return boolean?
---@return string? error
function response:drop() end

---@param value any
---@param status? integer
---@return boolean?
---@return string? error
function response:json(value, status) end

---Completes the response with a file of the folder `files` of [lua.NAME]. It waits.
---@param path string Below the folder.
---@return boolean?
---@return string? error "not found" leaves the response as it was.
function response:file(path) end

---@param target string
---@param status? integer 302 by default
---@return boolean?
---@return string? error
function response:redirect(target, status) end

---A WebSocket client of this worker.
---@class tide.Client
local client = {}

---@param data string|number
---@param kind? "text"|"binary"
---@return boolean?
---@return string? error
function client:send(data, kind) end

---@param code? integer
---@param reason? string
---@return boolean?
---@return string? error
function client:close(code, reason) end

---@return string
function client:id() end

---Bytes that wait for the client.
---@return integer
function client:queued() end

---@return boolean
function client:is_open() end

---A table for data of the script about this connection.
---@return table
function client:state() end

---The client gets what is published to the channel, until its connection ends.
---@param channel string Up to 255 bytes.
---@return boolean?
---@return string? error
function client:subscribe(channel) end

---@param channel string
---@return boolean?
---@return string? error
function client:unsubscribe(channel) end

---Sends a message to all other subscribers of the channel, in all workers.
---@param channel string
---@param data string|number
---@param kind? "text"|"binary"
---@return boolean?
---@return string? error
function client:publish(channel, data, kind) end

---A WebSocket client of another worker.
---@class tide.RemoteClient
local remote = {}

---@param data string|number
---@param kind? "text"|"binary"
---@return boolean?
---@return string? error
function remote:send(data, kind) end

---@param code? integer
---@param reason? string
---@return boolean?
---@return string? error
function remote:close(code, reason) end

---@return string
function remote:id() end

---A function that runs later.
---@class tide.Job
local job = {}

---@return boolean?
---@return string? error
function job:cancel() end

---A queue that all workers and applications share.
---@class tide.Queue
local queue = {}

---@param value tide.Value
---@return boolean?
---@return string? error "the queue is full"
function queue:push(value) end

---The oldest value.
---@param seconds? number How long it waits for one; it does not wait without this.
---@return tide.Value?
---@return string? error "empty", "timeout" or "premature"
function queue:pop(seconds) end

---@return integer
function queue:length() end

---A dictionary that all workers share.
---@class tide.Dictionary
local dictionary = {}

---@alias tide.Value string|number|boolean

---@param key string|number
---@return tide.Value?
function dictionary:get(key) end

---@param key string|number
---@param value tide.Value
---@param seconds? number
---@return boolean?
---@return string? error
function dictionary:set(key, value, seconds) end

---@param key string|number
---@param value tide.Value
---@param seconds? number
---@return boolean?
---@return string? error
function dictionary:add(key, value, seconds) end

---@param key string|number
---@param value tide.Value
---@param seconds? number
---@return boolean?
---@return string? error
function dictionary:replace(key, value, seconds) end

---@param key string|number
---@param by? number
---@param initial? number
---@param seconds? number
---@return number?
---@return string? error
function dictionary:incr(key, by, initial, seconds) end

---@param key string|number
---@param expected? tide.Value
---@param value? tide.Value
---@param seconds? number
---@return boolean?
---@return string? error
function dictionary:compare_and_set(key, expected, value, seconds) end

---@param key string|number
---@return boolean
function dictionary:delete(key) end

---@param key string|number
---@param seconds? number
---@return boolean?
---@return string? error
function dictionary:expire(key, seconds) end

---@param key string|number
---@return number?
---@return string? error
function dictionary:ttl(key) end

---@param key string|number
---@param value tide.Value
---@return integer?
---@return string? error
function dictionary:lpush(key, value) end

---@param key string|number
---@param value tide.Value
---@return integer?
---@return string? error
function dictionary:rpush(key, value) end

---@param key string|number
---@return tide.Value?
---@return string? error
function dictionary:lpop(key) end

---@param key string|number
---@return tide.Value?
---@return string? error
function dictionary:rpop(key) end

---@param key string|number
---@return integer?
---@return string? error
function dictionary:llen(key) end

---@param most? integer Maximum number of keys.
---@return string[]
function dictionary:keys(most) end

function dictionary:clear() end

---@return integer entries
---@return integer bytes
function dictionary:size() end

---@class tide.PublishOptions
---@field tags? table<string, string>
---@field skip_history? boolean
---@field idempotency_key? string
---@field delta? boolean Subscribers that want deltas get the difference to the publication before.
---@field wait? boolean Returns when the last worker has handed the message to its connections.

---A push hub. Methods wait for the result, and return nil, a message and a code if they fail.
---@class tide.Hub
local hub = {}

---@param channel string
---@param data any
---@param options? tide.PublishOptions
---@return { offset?: integer, epoch?: string }?
---@return string? error
---@return integer? code
function hub:publish(channel, data, options) end

---@param channels string[]
---@param data any
---@param options? tide.PublishOptions
---@return { responses: table[] }?
---@return string? error
---@return integer? code
function hub:broadcast(channels, data, options) end

---@param channel string
---@param options? { limit?: integer, since?: { offset: integer, epoch: string }, reverse?: boolean }
---@return { publications: table[], offset: integer, epoch: string }?
---@return string? error
---@return integer? code
function hub:history(channel, options) end

---@param channel string
---@return { presence: table<string, table> }?
---@return string? error
---@return integer? code
function hub:presence(channel) end

---@param channel string
---@return { num_clients: integer, num_users: integer }?
---@return string? error
---@return integer? code
function hub:presence_stats(channel) end

---@param channel string
---@return table?
---@return string? error
---@return integer? code
function hub:history_remove(channel) end

---@param pattern? string
---@return { channels: table<string, { num_clients: integer }> }?
---@return string? error
---@return integer? code
function hub:channels(pattern) end

---@return table?
---@return string? error
---@return integer? code
function hub:info() end

---@param arguments { user: string, channel: string, client?: string, data?: any, expire_at?: integer, recover_since?: { offset: integer, epoch: string } }
---@return table?
---@return string? error
---@return integer? code
function hub:subscribe(arguments) end

---@param arguments { user: string, channel: string, client?: string }
---@return table?
---@return string? error
---@return integer? code
function hub:unsubscribe(arguments) end

---@param arguments { user: string, client?: string, whitelist?: string[], disconnect?: { code: integer, reason: string } }
---@return table?
---@return string? error
---@return integer? code
function hub:disconnect(arguments) end

---@param arguments { user: string, client?: string, expire_at?: integer, expired?: boolean }
---@return table?
---@return string? error
---@return integer? code
function hub:refresh(arguments) end

---An attempt to find a server for a request, in `on_balance`.
---@class tide.Attempt
---@field pool string
---@field number integer From 1.
---@field servers { name: string, index: integer, is_free: boolean, was_tried: boolean }[]

---An event of a client of a push hub, in `on_push`.
---@class tide.PushEvent
---@field hub string
---@field type "connect"|"refresh"|"subscribe"|"publish"|"sub_refresh"|"rpc"|"disconnect"|"channel_empty"
---@field client? string
---@field transport? string
---@field protocol? "json"|"protobuf"
---@field user? string Not for `connect`.
---@field meta? any What the result of `connect` has kept.
---@field channel? string
---@field method? string For `rpc`.
---@field data? any
---@field name? string The client's library, for `connect`.
---@field version? string
---@field time_ms? integer For `channel_empty`.
---@field address? string The client's address.
---@field headers? table<string, string|string[]> Those of the client's first request that the setting `headers` lists.

---A message of a forwarded WebSocket, or its Close frame, in `on_frame`.
---@class tide.Frame
---@field from "client"|"server"
---@field kind "text"|"binary"|"close"
---@field data? string Not for "close".
---@field code? integer For "close"; 1005 if the frame has none.
---@field reason? string For "close".

---A forwarded WebSocket, in `on_frame` and `on_frame_end`.
---@class tide.Tunnel
---@field request tide.Request The request that has opened it.
local tunnel = {}

---Sends a message to one side.
---@param to "client"|"server"
---@param data string|number
---@param kind? "text"|"binary"
---@return boolean?
---@return string? error
function tunnel:send(to, data, kind) end

---Sends a Close frame to both sides.
---@param code? integer
---@param reason? string
---@return boolean?
---@return string? error
function tunnel:close(code, reason) end

---@return boolean
function tunnel:is_open() end

---A table for data of the script about this tunnel.
---@return table
function tunnel:state() end

---The handshake of a TLS connection, in `on_certificate`.
---@class tide.TlsHello
---@field name? string The server name that the client requests.
---@field listener string
---@field client string The client's address.

---The table that a script returns.
---@class tide.Handlers
---@field on_request? fun(request: tide.Request, response: tide.Response)
---@field on_upload? fun(request: tide.Request, response: tide.Response)
---@field on_access? fun(request: tide.Request, response: tide.Response)
---@field on_balance? fun(request: tide.Request, attempt: tide.Attempt): integer|string|nil
---@field on_response? fun(request: tide.Request, response: tide.ResponseHead)
---@field on_body? fun(request: tide.Request, body: tide.Body)
---@field on_frame? fun(frame: tide.Frame, tunnel: tide.Tunnel): string|number|boolean|nil, "text"|"binary"|nil
---@field on_frame_end? fun(tunnel: tide.Tunnel, code: integer, reason: string)
---@field on_certificate? fun(hello: tide.TlsHello): string|integer|false|nil
---@field on_log? fun(record: table<string, any>)
---@field on_open? fun(client: tide.Client, request: tide.Request)
---@field on_message? fun(client: tide.Client, message: string, kind: "text"|"binary")
---@field on_drain? fun(client: tide.Client)
---@field on_close? fun(client: tide.Client, code: integer, reason: string)
---@field on_push? fun(event: tide.PushEvent): true|table|false|nil, string|{ code: integer, message: string, temporary?: boolean }|nil
---@field on_start? fun()
---@field on_stop? fun()
---@field on_handover? fun(client: tide.Client, state: table) After a reload: a client of the previous code.
---@field on_retire? fun(seconds: number) After a reload, in the previous code: it ends after these seconds.

---The arguments of a simulated request (`tidegate lua test`).
---@class tide.TestRequest
---@field method? string
---@field path? string
---@field query? string|table<string, any>
---@field headers? table<string, string|number|(string|number)[]>
---@field body? string
---@field params? table<string, string|number>
---@field client? string
---@field scheme? "http"|"https"
---@field user? string For `on_access`.
---@field pools? string[] For `on_access`.

---The response of a server.
---@class tide.Reply
---@field status integer
---@field headers table<string, string|string[]> By name in lower case.
---@field body string
local reply = {}
---@param name string
---@return string?
function reply:header(name) end
---@return any
---@return string? error
function reply:json() end

---The head of a server's response, in `on_response`.
---@class tide.ResponseHead
---@field status integer
---@field headers table<string, string|string[]>
local head = {}
---@param name string
---@return string?
function head:header(name) end
---@param code integer
---@return tide.ResponseHead
function head:set_status(code) end
---@param name string
---@param value any A list repeats the field, nil removes it.
---@return tide.ResponseHead
function head:set_header(name, value) end
---@param name string
---@param value any
---@return tide.ResponseHead
function head:add_header(name, value) end
---Counts the response as a failure of its server.
---@return tide.ResponseHead
function head:mark_failed() end
---Forwards the body unchanged: `on_body` does not run.
---@return tide.ResponseHead
function head:keep_body() end

---The body of a server's response, in `on_body`.
---@class tide.Body
---@field status integer
---@field headers table<string, string|string[]>
local body = {}
---@param name string
---@return string?
function body:header(name) end
---The next piece; nil at the end.
---@return string? data
---@return string? error
function body:read() end
---Everything up to the end.
---@param most? integer Bytes (1 MiB).
---@return string? data
---@return string? error
---@return string? partial What was read, with an error.
function body:read_all(most) end
---@param ... string|number
---@return tide.Body?
---@return string? error
function body:write(...) end
---@return tide.Body?
---@return string? error
function body:flush() end

---A socket of `tide.tcp`. Times are milliseconds.
---@class tide.Socket
local socket = {}
---@param pool string One of the `pools` of [lua.NAME].
---@param options? { pool?: string } The name under which `setkeepalive` keeps the connection.
---@return true?
---@return string? error
function socket:connect(pool, options) end
---@param data string|number|table A list, which may be nested, is sent as one string.
---@return integer? bytes
---@return string? error
function socket:send(data) end
---@param what? "*l"|"*a"|integer
---@return string? data
---@return string? error
---@return string? partial
function socket:receive(what) end
---@param most integer
---@return string? data
---@return string? error
---@return string? partial
function socket:receiveany(most) end
---@param text string
---@param options? { inclusive?: boolean }
---@return fun(): string?, string?, string?
function socket:receiveuntil(text, options) end
---@param millis number
function socket:settimeout(millis) end
---@param connect number
---@param send number
---@param receive number
function socket:settimeouts(connect, send, receive) end
---@param millis? number 60000
---@param size? integer 30
---@return true?
---@return string? error
function socket:setkeepalive(millis, size) end
---@return integer? times
---@return string? error
function socket:getreusedtimes() end
---@return true?
---@return string? error
function socket:close() end

---A WebSocket connection to a server.
---@class tide.WebSocket
local connection = {}
---@param data string
---@param kind? "text"|"binary"
---@return true?
---@return string? error
function connection:send(data, kind) end
---@param seconds? number
---@return string? message
---@return string kind_or_error "text" or "binary", or an error
---@return integer? code With "closed": the code of the server.
---@return string? reason
function connection:receive(seconds) end
---@param code? integer 1000
---@param reason? string
---@return true?
---@return string? error
function connection:close(code, reason) end

---@class tide.WebSocketOptions
---@field path? string "/"
---@field host? string The name of the pool.
---@field headers? table<string, any>
---@field protocols? string[]
---@field timeout? number Seconds (60).
---@field message_max? integer Maximum size of a message in bytes (1 MiB).

---@class tide.HttpRequest
---@field pool string One of the `pools` of [lua.NAME].
---@field path? string "/"
---@field query? string|table<string, any>
---@field method? string "GET", or "POST" with a body.
---@field host? string The Host field.
---@field headers? table<string, any>
---@field body? string
---@field json? any A body as JSON.
---@field timeout? number Seconds (60).
---@field body_max? integer Maximum size of the response in bytes (1 MiB).

---@class tide.TestResponse
---@field status integer
---@field headers table<string, string|string[]>
---@field body string
---@field error? string
---@field dropped? boolean The handler has called `response:drop()`.
---@field forwarded? boolean
---@field path? string
---@field query_string? string
---@field pool? string
---@field header fun(self: tide.TestResponse, name: string): string|string[]|nil
---@field json fun(self: tide.TestResponse): any

---@class tide.TestClient
---@field send fun(self: tide.TestClient, data: string, kind?: "text"|"binary")
---@field receive fun(self: tide.TestClient, seconds?: number): string?, string, integer?, string?
---@field close fun(self: tide.TestClient, code?: integer, reason?: string)

---A socket of a server that a test simulates.
---@class tide.TestSocket: tide.Socket
---@field pool string

---A WebSocket connection of a server that a test simulates.
---@class tide.TestWebSocket: tide.WebSocket
---@field pool string
---@field path string
---@field headers table<string, string|string[]>

---A forwarded WebSocket: the test plays both sides.
---@class tide.TestTunnel
---@field send fun(self: tide.TestTunnel, from: "client"|"server", data: string, kind?: "text"|"binary"): string?, string? What the other side gets, and its kind.
---@field receive fun(self: tide.TestTunnel, by: "client"|"server"): string?, string?, integer?, string? What the script itself has sent to this side.
---@field close fun(self: tide.TestTunnel, from: "client"|"server", code?: integer, reason?: string)

---@class tide.Test
local test = {}

---@param what? tide.TestRequest
---@return tide.TestResponse
function test.request(what) end
---@param what? tide.TestRequest
---@return tide.TestResponse
function test.access(what) end
---@param what? tide.TestRequest|{ response: { status?: integer, headers?: table<string, any>, body?: string|string[] } }
---@return tide.TestResponse
function test.response(what) end
---@param what? tide.TestRequest
---@return tide.TestClient
function test.connect(what) end
---@param server string|fun(socket: tide.TestSocket)
function test.tcp(server) end
---@param server string|fun(connection: tide.TestWebSocket)
---@param options? { protocol?: string, status?: integer }
function test.websocket(server, options) end
---@param handler fun(request: tide.HttpRequest): table?, string?
function test.http(handler) end
---@param what tide.TestRequest|{ pool?: string, number?: integer, servers: (string|{ name: string, is_free?: boolean, was_tried?: boolean })[] }
---@return integer? server
---@return string? failure
function test.balance(what) end
---@param what tide.PushEvent|{ type: string } The hub is "test" unless it is given.
---@return { result?: table, error?: table, disconnect?: table, failure?: string } decision
function test.push(what) end
---@param what { name?: string, listener?: string, client?: string, certificates: (string|string[])[] } The names of each certificate.
---@return string|integer|false|nil choice
---@return string? failure
function test.certificate(what) end
---@param what? tide.TestRequest The request that opens it.
---@return tide.TestTunnel
function test.tunnel(what) end
---@param files table<string, string> The files of the application: paths and contents.
function test.files(files) end
---@return { hub: string, method: string, arguments: table }[]
function test.published() end
---@param values table<string, string|number|boolean>
function test.settings(values) end
---@param actual any
---@param expected any
---@param what? string
function test.equal(actual, expected, what) end

---A socket of `tide.udp`.
---@class tide.DatagramSocket
local datagrams = {}
---@param data string|number Sent as one datagram.
---@return true?
---@return string? error
function datagrams:send(data) end
---@param seconds? number 60
---@return string? data One datagram.
---@return string? error
function datagrams:receive(seconds) end
---@return true?
---@return string? error
function datagrams:close() end

---@class tide
---@field test tide.Test Only in tests.
---@field app string The name of the application.
---@field config table<string, string|number|boolean> The `settings` of the application.
---@field worker { id: integer, count: integer }
---@field shared table<string, tide.Dictionary>
---@field queue table<string, tide.Queue>
---@field push table<string, tide.Hub>
tide = {}

---@class tide.RedisOptions
---@field timeout? number Seconds, 60 by default.
---@field protocol? 2|3
---@field database? integer
---@field user? string
---@field password? string
---@field reply_max? integer Bytes, an eighth of `memory-max` by default, up to 16 MiB.

---A connection to a Redis server. Other methods are commands: `redis:get("key")`.
---@class tide.Redis
---@field [string] fun(self: tide.Redis, ...: string|number): any, string?
local redis_connection = {}
---Sends a command. A missing value is nil without an error.
---@param ... string|number
---@return any reply
---@return string? error
function redis_connection:call(...) end
---Sends several commands together.
---@param commands (string|number)[][]
---@return any[]? replies Missing values are `tide.json.null`, errors of the server are tables with `error` (`tide.redis.is_error`).
---@return string? error
function redis_connection:pipeline(commands) end
---The next message of a subscription.
---@return any message
---@return string? error
function redis_connection:read() end
---Keeps the connection for a later `connect` with the same options.
---@param seconds? number 60
---@param size? integer 30
---@return true?
---@return string? error
function redis_connection:keep(seconds, size) end
---@return true?
---@return string? error
function redis_connection:close() end

tide.redis = {}
---Connects to a server of a pool, or takes a kept connection.
---@param pool string One of the `pools` of [lua.NAME].
---@param options? tide.RedisOptions
---@return tide.Redis?
---@return string? error
function tide.redis.connect(pool, options) end
---Whether a value in a list or a map is an error of the server.
---@param value any
---@return boolean
function tide.redis.is_error(value) end

tide.websocket = {}

---Opens a WebSocket connection to a server of a pool.
---@param pool string One of the `pools` of [lua.NAME].
---@param options? tide.WebSocketOptions
---@return tide.WebSocket?
---@return string? protocol_or_error
function tide.websocket.connect(pool, options) end

---A socket for a server of a pool.
---@return tide.Socket
function tide.tcp() end

---@class tide.SrvRecord
---@field priority integer
---@field weight integer
---@field port integer
---@field target string

tide.files = {}

---The contents of a file of the folder `files` of [lua.NAME]. It waits.
---@param path string Below the folder.
---@param most? integer Bytes (1 MiB).
---@return string? contents
---@return string? error
function tide.files.read(path, most) end

tide.dns = {}

---Queries the name servers for the records of a name.
---@param name string
---@param kind? "A"|"AAAA"|"SRV"|"TXT" "A"
---@return string[]|tide.SrvRecord[]|nil records
---@return number|string seconds_or_error How long the records may be kept.
function tide.dns.resolve(name, kind) end

tide.udp = {}

---Opens a socket for datagrams to one address.
---@param host string An IP address in one of the networks of `udp` of [lua.NAME], or a name that has one.
---@param port integer
---@return tide.DatagramSocket?
---@return string? error
function tide.udp.connect(host, port) end

---Seconds since 1970.
---@return number
function tide.now() end

---Seconds of a clock that never jumps.
---@return number
function tide.elapsed() end

---The seconds until this VM ends, if a reload has loaded new code; otherwise false.
---@return number|false
function tide.premature() end

---@param seconds number
---@return boolean?
---@return string? error
function tide.sleep(seconds) end

---@param f function
---@param ... any
---@return tide.Job?
---@return string? error
function tide.spawn(f, ...) end

---@param waited tide.Job
---@param seconds? number
---@return any ...
function tide.wait(waited, seconds) end

---@param id string
---@return tide.Client|tide.RemoteClient|nil
---@return string? error
function tide.client(id) end

---@param data string
---@return string
function tide.hex(data) end

tide.timer = {}
---@param seconds number
---@param f function
---@param ... any
---@return tide.Job?
---@return string? error
function tide.timer.after(seconds, f, ...) end
---@param seconds number
---@param f function
---@param ... any
---@return tide.Job?
---@return string? error
function tide.timer.every(seconds, f, ...) end

tide.http = {}
---Sends a request to a server of a pool, and waits for the response.
---@param options tide.HttpRequest
---@return tide.Reply?
---@return string? error
function tide.http.request(options) end

tide.json = {}
---JSON's null.
tide.json.null = nil ---@type userdata
---@param value any
---@return string?
---@return string? error
function tide.json.encode(value) end
---@param text string
---@return any
---@return string? error
function tide.json.decode(text) end
---Marks a table as an array.
---@generic T
---@param t? T[]
---@return T[]
function tide.json.array(t) end

tide.cbor = {}
---@param value any
---@return string?
---@return string? error
function tide.cbor.encode(value) end
---@param data string
---@return any
---@return string? error
function tide.cbor.decode(data) end

tide.log = {}
---@param ... any
function tide.log.error(...) end
---@param ... any
function tide.log.warn(...) end
---@param ... any
function tide.log.info(...) end

tide.hash = {}
---@param data string
---@return string
function tide.hash.sha1(data) end
---@param data string
---@return string
function tide.hash.sha256(data) end
---@param data string
---@return string
function tide.hash.sha384(data) end
---@param data string
---@return string
function tide.hash.sha512(data) end

tide.hmac = {}
---@param key string
---@param data string
---@return string
function tide.hmac.sha1(key, data) end
---@param key string
---@param data string
---@return string
function tide.hmac.sha256(key, data) end
---@param key string
---@param data string
---@return string
function tide.hmac.sha384(key, data) end
---@param key string
---@param data string
---@return string
function tide.hmac.sha512(key, data) end

---Sends a message to all subscribers of the channel, in all workers (`client:subscribe`).
---@param channel string Up to 255 bytes.
---@param data string|number
---@param kind? "text"|"binary"
---@return boolean?
---@return string? error
function tide.publish(channel, data, kind) end

tide.crypto = {}
---Unpredictable random bytes.
---@param count integer 0 to 65536
---@return string? bytes
---@return string? error
function tide.crypto.random(count) end
---Encrypts and authenticates data with AES-GCM. Without `nonce`, the result begins with a random one.
---@param key string 16 or 32 bytes.
---@param data string
---@param context? string Authenticated, and not contained in the result.
---@param nonce? string 12 bytes that are never used again with this key.
---@return string? sealed
---@return string? error
function tide.crypto.seal(key, data, context, nonce) end
---@param key string
---@param sealed string
---@param context? string As for `seal`.
---@param nonce? string As for `seal`.
---@return string? data
---@return string? error
function tide.crypto.open(key, sealed, context, nonce) end
---Compares secrets in the same time wherever they differ.
---@param one string
---@param other string
---@return boolean
function tide.crypto.equal(one, other) end

tide.base64 = {}
---@param data string
---@return string
function tide.base64.encode(data) end
---@param data string
---@return string
function tide.base64.encode_url(data) end
---@param text string
---@return string?
---@return string? error
function tide.base64.decode(text) end

tide.url = {}
---@param text string
---@return string
function tide.url.escape(text) end
---@param text string
---@return string
function tide.url.unescape(text) end

return tide
