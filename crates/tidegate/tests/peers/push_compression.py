"""Subscribers in raw mode with permessage-deflate: Python websockets here, ws of Node in a child process.
Arguments: the address of the hub, that of the admin interface, and the command of the child. Prints the number of messages
that were received, and of compressions."""

import asyncio
import json
import re
import sys
import urllib.request

import websockets

LIMIT_SECONDS = 60
COUNT = 30
ADDRESS, ADMIN, *CHILD = sys.argv[1:]
URL = f"ws://{ADDRESS}/push/subscribe/news"
DATA = " ".join(f"word {number}" for number in range(200))
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def publish():
    body = json.dumps({"channel": "news", "data": DATA, "wait": True}).encode()
    request = urllib.request.Request(
        f"http://{ADDRESS}/push/api/publish", body, {"X-API-Key": "0123456789abcdef"}
    )
    with OPENER.open(request, timeout=LIMIT_SECONDS) as response:
        return json.load(response)["result"]["delivery"]["reached"]


def compressions():
    with OPENER.open(f"http://{ADMIN}/metrics", timeout=LIMIT_SECONDS) as response:
        text = response.read().decode()
    values = re.findall(r"^tidegate_push_compressions\S* (\d+)", text, re.MULTILINE)
    assert values, "the counter is missing"
    return sum(map(int, values))


async def main():
    child = await asyncio.create_subprocess_exec(
        *CHILD, URL, str(COUNT), stdout=asyncio.subprocess.PIPE
    )
    connections = [await websockets.connect(URL) for _ in range(COUNT)]
    for connection in connections:
        agreed = connection.response_headers if hasattr(connection, "response_headers") else connection.response.headers
        assert "permessage-deflate" in agreed.get("Sec-WebSocket-Extensions", ""), agreed
    plain = await websockets.connect(URL, compression=None)
    assert await child.stdout.readline() == b"ready\n"
    reached = await asyncio.to_thread(publish)
    for connection in [*connections, plain]:
        assert json.loads(await connection.recv()) == DATA
    received = int(await child.stdout.readline())
    print(f"{reached} subscribers")
    print(f"{received + len(connections) + 1} received")
    print(f"{await asyncio.to_thread(compressions)} compression")
    for connection in [*connections, plain]:
        await connection.close()
    assert await child.wait() == 0


asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
