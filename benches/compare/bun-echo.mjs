// Sends each WebSocket message back; one thread.
Bun.serve({
  hostname: "{host}",
  port: Number("{port}"),
  fetch(request, server) {
    return server.upgrade(request) ? undefined : new Response("WebSocket only", { status: 426 });
  },
  websocket: {
    perMessageDeflate: false,
    message(socket, message) {
      socket.send(message);
    },
  },
});
