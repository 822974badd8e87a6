"""Tests the echo service at the URL given as the argument; prints one line for each test that passes."""
import asyncio
import os
import sys

import websockets


async def main(url):
    async with websockets.connect(url, max_size=8 << 20) as connection:
        for message in ["", "grüße", "".join(map(str, range(40_000))), b"", b"\x00\xff", os.urandom(3 << 20)]:
            await connection.send(message)
            assert await connection.recv() == message
        print("echo")
        for message in range(1000):
            await connection.send(str(message))
        for message in range(1000):
            assert await connection.recv() == str(message)
        print("burst")
        await (await connection.ping(b"are you there"))
        print("ping")
    assert connection.close_code == 1000, connection.close_code
    print("close")
    connections = [await websockets.connect(url) for _ in range(50)]
    for at, connection in enumerate(connections):
        await connection.send(f"from {at}")
    for at, connection in enumerate(connections):
        assert await connection.recv() == f"from {at}"
        await connection.close()
    print("fifty")


asyncio.run(main(sys.argv[1]))
