// Serves the tests of HTTP/2 towards servers with Node: http2_server.js ADDRESS [KEY CERTIFICATE]. Prints its address. Its
// windows for requests are small. SIGTERM stops it gracefully (GOAWAY): it ends when its connections have ended.
const fs = require("node:fs");
const http2 = require("node:http2");

const [address, key, certificate] = process.argv.slice(2);
const [host, port] = address.split(":");
const settings = { initialWindowSize: 3000 };
const server = key === undefined
  ? http2.createServer({ settings })
  : http2.createSecureServer({ settings, key: fs.readFileSync(key), cert: fs.readFileSync(certificate) });
const sessions = new Set();

server.on("session", (session) => {
  sessions.add(session);
  session.on("close", () => sessions.delete(session));
  session.on("error", () => {});
});

server.on("stream", (stream, head) => {
  stream.on("error", () => {});
  const serve = { "/hello": hello, "/echo": echo, "/count": count, "/reset": reset }[head[":path"]];
  serve(stream);
});

function hello(stream) {
  stream.respond({ ":status": 200 });
  stream.end("hello");
}

// Sends each piece of the request back.
function echo(stream) {
  stream.respond({ ":status": 200 });
  stream.pipe(stream);
}

// Counts the request, and sends the sum in a trailer too.
function count(stream) {
  let size = 0;
  let trailers = [];
  stream.on("data", (data) => { size += data.length; });
  stream.on("trailers", (fields) => { trailers = Object.entries(fields).map(([name, value]) => `${name}=${value}`); });
  stream.on("end", () => setImmediate(() => {
    stream.respond({ ":status": 200 }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "x-sum": String(size) }));
    stream.end(`${size} ${trailers.join(" ")}\n`);
  }));
}

// Resets the stream in the middle of a response.
function reset(stream) {
  stream.respond({ ":status": 200 });
  stream.write("only this", () => setTimeout(() => stream.destroy(new Error("reset")), 100));
}

process.on("SIGTERM", () => {
  server.close();
  for (const session of sessions) session.close();
});

server.listen(Number(port), host, () => {
  console.log(`${server.address().address}:${server.address().port}`);
});
