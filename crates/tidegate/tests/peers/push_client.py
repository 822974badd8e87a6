"""The client library of Centrifugo for Python against a push hub: what its users rely on.
Arguments: the address of the hub, json or protobuf. Prints a word for each part that works."""

import asyncio
import base64
import hashlib
import hmac
import json
import sys
import time
import urllib.request

from centrifuge import (
    Client,
    ClientEventHandler,
    DeltaType,
    Filter,
    ReplyError,
    StreamPosition,
    SubscriptionEventHandler,
)

KEY = "0123456789abcdef"
LIMIT_SECONDS = 60
ROOM = "chat:room"
ADDRESS, PROTOCOL = sys.argv[1:]
IS_PROTOBUF = PROTOCOL == "protobuf"


def pack(value):
    """Messages of Protobuf contain bytes, those of JSON values."""
    return json.dumps(value).encode() if IS_PROTOBUF else value


def unpack(data):
    return json.loads(data) if IS_PROTOBUF else data


def token(**claims):
    def encode(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    signed = encode(b'{"alg":"HS256","typ":"JWT"}') + b"." + encode(json.dumps(claims).encode())
    return (signed + b"." + encode(hmac.digest(b"a-secret-of-the-test", signed, hashlib.sha256))).decode()


def after(seconds):
    return int(time.time()) + seconds


def post(method, body):
    url = f"http://{ADDRESS}/push/api/{method}"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"X-API-Key": KEY})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request) as response:
        reply = json.load(response)
    assert "error" not in reply, f"{method}: {reply}"


async def publish(first, last):
    for n in range(first, last + 1):
        await asyncio.to_thread(post, "publish", {"channel": ROOM, "data": {"n": n}})


class Events(ClientEventHandler):
    def __init__(self):
        self.connected, self.disconnected, self.errors = asyncio.Queue(), asyncio.Queue(), asyncio.Queue()

    async def on_connected(self, ctx):
        self.connected.put_nowait(ctx)

    async def on_disconnected(self, ctx):
        self.disconnected.put_nowait(ctx)

    async def on_error(self, ctx):
        self.errors.put_nowait(ctx)


class Received(SubscriptionEventHandler):
    def __init__(self):
        self.subscribed, self.unsubscribed = asyncio.Queue(), asyncio.Queue()
        self.joined, self.left = asyncio.Queue(), asyncio.Queue()
        self.publications, self.numbers = asyncio.Queue(), []

    async def on_subscribed(self, ctx):
        self.subscribed.put_nowait(ctx)

    async def on_unsubscribed(self, ctx):
        self.unsubscribed.put_nowait(ctx)

    async def on_join(self, ctx):
        self.joined.put_nowait(ctx.info.user)

    async def on_leave(self, ctx):
        self.left.put_nowait(ctx.info.user)

    async def on_publication(self, ctx):
        self.publications.put_nowait(unpack(ctx.pub.data)["n"])

    async def expect(self, last):
        """Waits for the publications up to this number, which must be all of them, in order."""
        while len(self.numbers) < last:
            self.numbers.append(await self.publications.get())
            assert self.numbers[-1] == len(self.numbers), f"order: {self.numbers}"


async def wait_for(users, user):
    while await users.get() != user:
        pass


async def code_of(operation):
    try:
        await operation
    except ReplyError as error:
        return error.code
    return 0


def client(hub="push", **options):
    options = {"min_reconnect_delay": 0.05, "max_reconnect_delay": 0.2, "proxy": None, **options}
    address = f"ws://{ADDRESS}/{hub}/connection/websocket"
    return Client(address, Events(), use_protobuf=IS_PROTOBUF, **options)


async def exchange():
    alice = client(token=token(sub="alice", info={"name": "Alice"}))
    bob = client(token=token(sub="bob"))
    await alice.connect()
    assert len((await alice.events.connected.get()).client) == 36, "a name of the client"
    mine = alice.new_subscription(ROOM, Received())
    await mine.subscribe()
    subscribed = await mine.events.subscribed.get()
    assert subscribed.recoverable and subscribed.positioned, "recovery"
    await bob.connect()
    theirs = bob.new_subscription(ROOM, Received())
    await theirs.subscribe()
    await theirs.events.subscribed.get()
    await wait_for(mine.events.joined, "bob")
    print("subscribe")

    await publish(1, 20)
    await theirs.publish(pack({"n": 21}))
    await mine.events.expect(21)
    await theirs.events.expect(21)
    print("publish")

    history = await mine.history(limit=3, reverse=True)
    assert [unpack(one.data)["n"] for one in history.publications] == [21, 20, 19], "history"
    assert history.publications[0].info.user == "bob" and history.offset == 21, "publisher"
    later = await mine.history(limit=2, since=StreamPosition(18, history.epoch))
    assert [one.offset for one in later.publications] == [19, 20], "history since a position"
    assert await code_of(mine.history(limit=2, since=StreamPosition(18, "other"))) == 112, "another epoch"
    print("history")

    presence = await mine.presence()
    infos = {one.user: one.conn_info for one in presence.clients.values()}
    assert sorted(infos) == ["alice", "bob"] and unpack(infos["alice"])["name"] == "Alice", f"presence: {infos}"
    stats = await mine.presence_stats()
    assert (stats.num_clients, stats.num_users) == (2, 2), "counts"
    print("presence")
    await recover(alice, bob, mine.events, theirs.events)


async def recover(alice, bob, mine, theirs):
    await bob.disconnect()
    await wait_for(mine.left, "bob")
    await publish(22, 30)
    await bob.connect()
    again = await theirs.subscribed.get()
    assert again.was_recovering and again.recovered, "recovered"
    await theirs.expect(30)
    await publish(31, 40)
    bob._conn.transport.abort()
    await publish(41, 90)
    assert (await theirs.subscribed.get()).recovered, "recovered after the cut"
    await theirs.expect(90)
    print("recovery")

    await bob.disconnect()
    await publish(91, 200)
    await bob.connect()
    lost = await theirs.subscribed.get()
    assert lost.was_recovering and not lost.recovered, "told that messages are lost"
    print("lost")
    await alice.disconnect()
    await bob.disconnect()


async def renew_tokens():
    """Tokens of connections and subscriptions are renewed when they end."""
    spans = {"connection": [4, 1000], "subscription": [4, 1000]}
    asked = asyncio.Queue()

    def span(what):
        left = spans[what]
        if len(left) == 1:
            asked.put_nowait(what)
        return after(left.pop(0) if left else 1000)

    async def get_token():
        return token(sub="carol", exp=span("connection"))

    async def get_channel_token(channel):
        return token(sub="carol", channel=channel, exp=span("subscription"))

    carol = client(token=token(sub="carol", exp=1000), get_token=get_token)
    await carol.connect()
    await carol.events.connected.get()
    assert (await carol.events.errors.get()).error.code == 109, "an expired token"
    own = carol.new_subscription("closed:own", Received(), get_token=get_channel_token)
    await own.subscribe()
    await own.events.subscribed.get()
    assert {await asked.get(), await asked.get()} == {"connection", "subscription"}
    assert await code_of(own.publish(pack({}))) == 103, "renewed"
    assert carol.events.connected.empty() and own.events.unsubscribed.empty(), "renewed without a gap"
    await carol.disconnect()
    print("tokens")


async def rights():
    for text, code in [("", 3501), (token(sub="eve")[:-4] + "AAAA", 3500)]:
        refused = client(token=text)
        await refused.connect()
        assert (await refused.events.disconnected.get()).code == code, f"refused: {code}"
    dave = client(token=token(sub="dave"))
    await dave.connect()
    for channel, code in [("closed", 103), ("unknown:a", 102), ("$chat:own", 103)]:
        denied = dave.new_subscription(channel, Received())
        await denied.subscribe()
        assert (await denied.events.unsubscribed.get()).code == code, channel
    assert await code_of(dave.publish(ROOM, pack({}))) == 103, "publish"
    assert await code_of(dave.history(ROOM)) == 103, "history"
    assert await code_of(dave.presence("closed:a")) == 108, "presence"
    assert await code_of(dave.rpc("method", pack({}))) == 108, "rpc"
    await dave.disconnect()

    anonymous = client("open")
    await anonymous.connect()
    news = anonymous.new_subscription("news", Received())
    await news.subscribe()
    await news.events.subscribed.get()
    await news.publish(pack({"n": 1}))
    await news.events.expect(1)
    await news.unsubscribe()
    assert (await news.events.unsubscribed.get()).code == 0, "unsubscribed"
    await anonymous.disconnect()
    print("rights")


async def deltas():
    """Most messages come as patches of the previous message, even after a recovery."""
    erin = client(token=token(sub="erin"))
    await erin.connect()
    document = erin.new_subscription("doc:a", Received(), delta=DeltaType.FOSSIL)
    await document.subscribe()
    await document.events.subscribed.get()
    text = "the p\u00e4rt \U0001f30a that \"stays\" the same " * 20
    for n in range(1, 61):
        await asyncio.to_thread(post, "publish", {"channel": "doc:a", "data": {"n": n, "text": text if n % 20 else ""}})
        if n == 30:
            erin._conn.transport.abort()
    await document.events.expect(60)
    await erin.disconnect()
    print("deltas")


async def filters():
    """A filter selects messages by their tags."""
    frank = client(token=token(sub="frank"))
    await frank.connect()
    odd = Filter.is_in("parity", ["odd", "both"])
    document = frank.new_subscription("doc:own#erin,frank", Received(), tags_filter=odd)
    await document.subscribe()
    await document.events.subscribed.get()
    for n in range(1, 20):
        body = {"channel": document.channel, "data": {"n": n}, "tags": {"parity": "odd" if n % 2 else "even"}}
        await asyncio.to_thread(post, "publish", body)
    received = [await document.events.publications.get() for _ in range(10)]
    assert received == list(range(1, 20, 2)), f"filtered: {received}"
    await frank.disconnect()
    print("filters")


async def main():
    await exchange()
    await renew_tokens()
    await rights()
    await deltas()
    await filters()


asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
