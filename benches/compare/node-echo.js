// Sends each WebSocket message back with the package ws; one thread.
const { WebSocketServer } = require("/usr/share/nodejs/ws");

const server = new WebSocketServer({ host: "{host}", port: Number("{port}"), perMessageDeflate: false });
server.on("connection", (socket) => {
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  socket.on("error", () => socket.terminate());
});
