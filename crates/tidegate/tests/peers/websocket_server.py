"""An echo service on the `websockets` library; prints the address that it listens on."""
import asyncio

import websockets


async def echo(connection, *_):
    async for message in connection:
        await connection.send(message)


async def main():
    server = await websockets.serve(echo, "127.0.0.1", 0, max_size=8 << 20)
    print("%s:%d" % server.sockets[0].getsockname()[:2], flush=True)
    await asyncio.Future()


asyncio.run(main())
