"""Sends each WebSocket message back with the package websockets; one thread."""
import asyncio

import websockets


async def echo(connection, *_):
    async for message in connection:
        await connection.send(message)


async def main():
    async with websockets.serve(echo, "{host}", int("{port}"), compression=None, max_size=None):
        await asyncio.Future()


asyncio.run(main())
