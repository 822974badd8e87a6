"""Exchanges large messages until the process that forwards them stops. argv: the URL, the number of the process."""
import asyncio
import os
import signal
import sys

import websockets


async def main(url, pid):
    async with websockets.connect(url, max_size=None, ping_interval=None) as connection:
        message = b"x" * 300_000
        await connection.send(message)
        count = 0
        try:
            while True:
                assert await connection.recv() == message
                await connection.send(message)
                count += 1
                if count == 20:
                    os.kill(pid, signal.SIGTERM)
        except websockets.ConnectionClosed as closed:
            frame = getattr(closed, "rcvd", None) or closed
            print(frame.code, frame.reason)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
