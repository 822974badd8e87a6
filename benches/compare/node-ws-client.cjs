// Opens WebSocket connections with the package ws, and sends each message back that the server echoes; one thread.
// usage: node node-ws-client.cjs URL CONNECTIONS BYTES, with NODE_PATH naming the folder that has ws (and bufferutil)
const { WebSocket } = require("ws");

const [url, connections, bytes] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const message = Buffer.alloc(bytes, "x");
for (let number = 0; number < connections; number += 1) {
  const socket = new WebSocket(url, { perMessageDeflate: false });
  socket.on("open", () => socket.send(message));
  socket.on("message", (data) => {
    if (data.length !== bytes) throw new Error(`an echo of ${data.length} bytes`);
    socket.send(data);
  });
  socket.on("error", (error) => { throw error; });
}
