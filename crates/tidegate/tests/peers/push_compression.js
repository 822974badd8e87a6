// Subscribers in raw mode with permessage-deflate, by the package ws. Arguments: the URL and the number of connections.
// Prints `ready`, and then how many of them have received a message that was compressed.
const assert = require("node:assert");
const { once } = require("node:events");
const WebSocket = require("ws");

const [url, count] = process.argv.slice(2);
setTimeout(() => { throw new Error("timed out"); }, 60000).unref();

async function main() {
  const sockets = [];
  for (let at = 0; at < Number(count); at++) {
    const socket = new WebSocket(url, { perMessageDeflate: true });
    await once(socket, "open");
    assert.ok(socket.extensions.includes("permessage-deflate"), socket.extensions);
    sockets.push(socket);
  }
  const raw = sockets.map((socket) => {
    let bytes = 0;
    socket._socket.prependListener("data", (data) => { bytes += data.length; });
    return once(socket, "message").then(([data]) => {
      assert.ok(bytes < data.length / 2, `${bytes} bytes of ${data.length}`);
    });
  });
  console.log("ready");
  await Promise.all(raw);
  console.log(raw.length);
  sockets.forEach((socket) => socket.close());
}

main();
