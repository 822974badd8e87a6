-- Files of the folder `files` of the application.
local native, P = ...

local type, tonumber, error = type, tonumber, error
local find, sub, lower = native.find, string.sub, string.lower
local match, concat = P.G.string.match, table.concat
local describe, finish, flush, set_status = native.file_describe, native.finish, native.flush, native.status
local wrong, append = P.wrong, P.append

-- How many bytes are read at once, and how many `read` returns by default.
local PIECE_BYTES, ALL_BYTES = 64 * 1024, 1024 * 1024

local TYPES = {
  html = "text/html; charset=utf-8", htm = "text/html; charset=utf-8", css = "text/css; charset=utf-8",
  js = "text/javascript; charset=utf-8", mjs = "text/javascript; charset=utf-8", json = "application/json",
  map = "application/json", webmanifest = "application/manifest+json", xml = "application/xml",
  txt = "text/plain; charset=utf-8", md = "text/markdown; charset=utf-8", csv = "text/csv; charset=utf-8",
  svg = "image/svg+xml", png = "image/png", jpg = "image/jpeg", jpeg = "image/jpeg", gif = "image/gif",
  webp = "image/webp", avif = "image/avif", ico = "image/x-icon", pdf = "application/pdf", wasm = "application/wasm",
  woff = "font/woff", woff2 = "font/woff2", ttf = "font/ttf", mp4 = "video/mp4", webm = "video/webm", mp3 = "audio/mpeg",
  ogg = "audio/ogg", wav = "audio/wav", zip = "application/zip", gz = "application/gzip",
}

-- Tests replace it.
function P.read_piece(path, offset, most) return native.file_read(path, offset, most) end

-- The facts about a file, and its bytes from `offset`.
local function piece_of(path, offset, most)
  local ok, reply = P.read_piece(path, offset, most)
  if not ok then return nil, reply end
  local stop = find(reply, "\n", 1, true)
  local size, modified, tag = match(sub(reply, 1, stop - 1), "^(%d+) (%d+) (%x+)$")
  return { size = tonumber(size), modified = tonumber(modified), tag = tag, data = sub(reply, stop + 1) }
end

-- The bytes that follow, of the same version of the file.
local function next_piece(path, first, offset)
  local piece, err = piece_of(path, offset, PIECE_BYTES)
  if not piece then return nil, err end
  if piece.tag ~= first.tag or piece.data == "" then return nil, "the file has changed while it was read" end
  return piece.data
end

local response = P.response_methods

-- Completes the response with a file. If there is no such file, the response is not changed.
function response:file(path)
  if type(path) ~= "string" then wrong("file", 1, "string", path) end
  local first, err = piece_of(path, 0, PIECE_BYTES)
  if not first then return nil, err end
  local media_type = TYPES[lower(match(path, "%.(%w+)$") or "")] or "application/octet-stream"
  local is_known
  is_known, err = describe(self[1], self[2], media_type, first.tag, first.modified)
  if is_known == nil then return nil, err end
  if is_known then
    set_status(self[1], self[2], 304)
    return finish(self[1], self[2])
  end
  local sent = #first.data
  if sent < first.size and P.new_request(self[1], self[2]).method == "HEAD" then
    -- The head alone. It does not contain the length, as that of GET does not.
    local ok
    ok, err = flush(self[1], self[2])
    if not ok then return nil, err end
    return finish(self[1], self[2])
  end
  -- While the script waits for the client, it holds no piece: there may be many slow clients.
  local data, ok = first.data, nil
  first.data = nil
  while true do
    ok, err = append(self, data)
    data = nil
    if not ok then return nil, err end
    if sent >= first.size then return finish(self[1], self[2]) end
    ok, err = flush(self[1], self[2])
    if not ok then return nil, err end
    data, err = next_piece(path, first, sent)
    -- A response that would lack a part of its body must fail.
    if not data then error(path .. ": " .. err, 2) end
    sent = sent + #data
  end
end

local files = {}

-- The contents of a file, up to `most` bytes.
function files.read(path, most)
  if type(path) ~= "string" then wrong("read", 1, "string", path) end
  if most == nil then most = ALL_BYTES end
  if type(most) ~= "number" then wrong("read", 2, "number", most) end
  local first, err = piece_of(path, 0, PIECE_BYTES)
  if not first then return nil, err end
  if first.size > most then return nil, "too large" end
  local parts, got = { first.data }, #first.data
  while got < first.size do
    local data
    data, err = next_piece(path, first, got)
    if not data then return nil, err end
    parts[#parts + 1] = data
    got = got + #data
  end
  return concat(parts)
end

P.tide.files = P.sealed("tide.files", files)

return P
