"""The tests of HTTP/2 towards servers as an ASGI application, served by hypercorn: http2_server.py KEY CERTIFICATE.

Prints its listening address. Over TLS, because hypercorn without TLS wants an Upgrade or prior knowledge to be configured.
"""
import asyncio
import socket
import sys

from hypercorn.asyncio import serve
from hypercorn.config import Config


async def websocket(receive, send):
    """Sends each message back."""
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": event.get("text"), "bytes": event.get("bytes")})


async def application(scope, receive, send):
    if scope["type"] == "websocket":
        return await websocket(receive, send)
    if scope["type"] != "http":
        raise ValueError("not a request")
    start = {"type": "http.response.start", "status": 200, "headers": []}
    if scope["path"] == "/echo":
        await send(start)
        while True:
            event = await receive()
            await send({"type": "http.response.body", "body": event.get("body", b""), "more_body": True})
            if not event.get("more_body"):
                break
        await send({"type": "http.response.body", "body": b""})
    elif scope["path"] == "/count":
        size, more = 0, True
        while more:
            event = await receive()
            size, more = size + len(event.get("body", b"")), event.get("more_body", False)
        await send(start)
        await send({"type": "http.response.body", "body": b"%d \n" % size})
    else:
        await send(start)
        await send({"type": "http.response.body", "body": b"hello"})


listener = socket.create_server(("127.0.0.1", 0))
config = Config()
config.bind = [f"fd://{listener.fileno()}"]
config.keyfile, config.certfile = sys.argv[1:3]
config.accesslog = config.errorlog = None
print("%s:%d" % listener.getsockname(), flush=True)
asyncio.run(serve(application, config))
