"""Centrifugo's server library for Python against the server API of a push hub, with clients that see what it does.
Arguments: the address of the hub, json or protobuf. Prints a word for each part that works."""

import asyncio
import base64
import hashlib
import hmac
import json
import sys
import time

from cent import (
    AsyncClient, BatchRequest, BroadcastRequest, CentApiResponseError, ChannelsRequest, Disconnect, DisconnectRequest,
    HistoryRemoveRequest, HistoryRequest, InfoRequest, PresenceRequest, PresenceStatsRequest, PublishRequest,
    RefreshRequest, StreamPosition, SubscribeRequest, UnsubscribeRequest,
)
from centrifuge import Client, ClientEventHandler, SubscriptionEventHandler

LIMIT_SECONDS = 60
ROOM = "chat:room"
ADDRESS, PROTOCOL = sys.argv[1:]
IS_PROTOBUF = PROTOCOL == "protobuf"


def unpack(data):
    """Messages of Protobuf contain bytes, those of JSON values."""
    return json.loads(data) if IS_PROTOBUF else data


def token(**claims):
    def encode(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    signed = encode(b'{"alg":"HS256","typ":"JWT"}') + b"." + encode(json.dumps(claims).encode())
    return (signed + b"." + encode(hmac.digest(b"a-secret-of-the-test", signed, hashlib.sha256))).decode()


class Events(ClientEventHandler):
    """Events of a client and of the subscriptions that the application makes."""

    def __init__(self):
        self.events = asyncio.Queue()
        self.is_connected = asyncio.Event()

    async def on_connected(self, ctx):
        self.id = ctx.client
        self.is_connected.set()

    async def on_connecting(self, ctx):
        self.events.put_nowait(("connecting", ctx.code, ctx.reason))

    async def on_disconnected(self, ctx):
        self.events.put_nowait(("disconnected", ctx.code, ctx.reason))

    async def on_subscribed(self, ctx):
        self.events.put_nowait(("subscribed", ctx.channel, ctx.stream_position and ctx.stream_position.offset))

    async def on_unsubscribed(self, ctx):
        self.events.put_nowait(("unsubscribed", ctx.channel))

    async def on_publication(self, ctx):
        self.events.put_nowait(("publication", ctx.channel, unpack(ctx.pub.data)))


class Received(SubscriptionEventHandler):
    def __init__(self):
        self.subscribed, self.unsubscribed = asyncio.Queue(), asyncio.Queue()

    async def on_subscribed(self, ctx):
        self.subscribed.put_nowait(ctx)

    async def on_unsubscribed(self, ctx):
        self.unsubscribed.put_nowait(ctx)


async def connect(user, **claims):
    events = Events()
    address = f"ws://{ADDRESS}/push/connection/websocket"
    options = {"min_reconnect_delay": 0.05, "max_reconnect_delay": 0.2, "proxy": None}
    client = Client(address, events, token=token(sub=user, **claims), use_protobuf=IS_PROTOBUF, **options)
    await client.connect()
    await events.is_connected.wait()
    assert await events.events.get() == ("connecting", 0, "connect called")
    return client


async def failure(operation):
    try:
        await operation
    except CentApiResponseError as error:
        return error.code
    return 0


async def messages(api):
    first = await api.publish(PublishRequest(channel=ROOM, data={"n": 1}, tags={"k": "v"}))
    second = await api.publish(PublishRequest(channel=ROOM, data={"n": 2}, idempotency_key="a"))
    again = await api.publish(PublishRequest(channel=ROOM, data={"n": 2}, idempotency_key="a"))
    assert (first.offset, second.offset, again.offset) == (1, 2, 2) and first.epoch == again.epoch, "publish"
    sent = await api.broadcast(BroadcastRequest(channels=[ROOM, "unknown:a"], data={"n": 3}))
    assert sent.responses[0].result.offset == 3 and sent.responses[1].error.code == 102, f"broadcast: {sent}"
    history = await api.history(HistoryRequest(channel=ROOM, limit=-1))
    assert [one.data["n"] for one in history.publications] == [1, 2, 3] and history.offset == 3, "history"
    assert history.publications[0].tags == {"k": "v"}, "tags"
    since = StreamPosition(offset=3, epoch=history.epoch)
    back = await api.history(HistoryRequest(channel=ROOM, limit=1, since=since, reverse=True))
    assert [one.offset for one in back.publications] == [2], "history in reverse"
    await api.history_remove(HistoryRemoveRequest(channel=ROOM))
    history = await api.history(HistoryRequest(channel=ROOM, limit=-1))
    assert not history.publications and history.offset == 3, "removed"
    replies = await api.batch(BatchRequest(requests=[
        PublishRequest(channel=ROOM, data={"n": 4}), HistoryRequest(channel=ROOM, limit=5)]))
    assert (replies.replies[0].offset, len(replies.replies[1].publications)) == (4, 1), f"batch: {replies}"
    assert await failure(api.publish(PublishRequest(channel="unknown:a", data={}))) == 102, "unknown channel"
    assert await failure(api.presence(PresenceRequest(channel="closed:a"))) == 108, "no presence"
    print("messages")


async def lists(api):
    alice, bob = await connect("alice", info={"name": "Alice"}), await connect("bob")
    for client in (alice, bob):
        room = client.new_subscription(ROOM, Received())
        await room.subscribe()
        await room.events.subscribed.get()
    presence = await api.presence(PresenceRequest(channel=ROOM))
    named = {one.user: one.conn_info for one in presence.presence.values()}
    assert named == {"alice": {"name": "Alice"}, "bob": None}, f"presence: {named}"
    stats = await api.presence_stats(PresenceStatsRequest(channel=ROOM))
    assert (stats.num_clients, stats.num_users) == (2, 2), "counts"
    channels = await api.channels(ChannelsRequest(pattern="chat:*"))
    assert channels.channels[ROOM].num_clients == 2, "channels"
    node = (await api.info(InfoRequest())).nodes[0]
    assert (node.num_subs, node.num_channels) == (2, 1), f"info: {node}"
    print("lists")
    return alice, bob


async def subscriptions(api, alice):
    # The application subscribes every connection of a user, with what was published since a position.
    top = await api.publish(PublishRequest(channel="chat:own", data={"n": 1}))
    since = StreamPosition(offset=0, epoch=top.epoch)
    second = await connect("alice")
    for client in (alice, second):
        await api.subscribe(SubscribeRequest(user="alice", client=client.events.id, channel="chat:own", recover_since=since))
        assert await client.events.events.get() == ("subscribed", "chat:own", 0)
        assert await client.events.events.get() == ("publication", "chat:own", {"n": 1})
    await api.subscribe(SubscribeRequest(user="alice", channel="closed:plain"))
    await api.publish(PublishRequest(channel="closed:plain", data={"n": 2}))
    for client in (alice, second):
        assert await client.events.events.get() == ("subscribed", "closed:plain", None)
        assert await client.events.events.get() == ("publication", "closed:plain", {"n": 2})
    await api.unsubscribe(UnsubscribeRequest(user="alice", channel="chat:own"))
    for client in (alice, second):
        assert await client.events.events.get() == ("unsubscribed", "chat:own")
    # A subscription of the client itself.
    room = alice.get_subscription(ROOM)
    await api.unsubscribe(UnsubscribeRequest(user="alice", channel=ROOM))
    ended = await room.events.unsubscribed.get()
    assert (ended.code, ended.reason) == (2000, "server unsubscribe"), f"unsubscribe: {ended}"
    assert (await api.presence_stats(PresenceStatsRequest(channel=ROOM))).num_clients == 1, "left"
    print("subscriptions")
    return second


async def connections(api, alice, second, bob):
    spared = DisconnectRequest(user="alice", whitelist=[second.events.id], disconnect=Disconnect(code=4500, reason="bye"))
    await api.disconnect(spared)
    assert await alice.events.events.get() == ("disconnected", 4500, "bye")
    # A client that may come back, and recovers.
    room = bob.get_subscription(ROOM)
    await api.disconnect(DisconnectRequest(user="bob", disconnect=Disconnect(code=4000, reason="again")))
    assert await bob.events.events.get() == ("connecting", 4000, "again")
    context = await room.events.subscribed.get()
    assert context.was_recovering and context.recovered, "recovered"
    await api.refresh(RefreshRequest(user="bob", expire_at=int(time.time()) + 1000))
    await api.refresh(RefreshRequest(user="alice", client=second.events.id, expired=True))
    assert await second.events.events.get() == ("connecting", 3005, "connection expired")
    assert second.events.events.empty() and bob.events.events.empty(), "no other client is concerned"
    assert await failure(api.disconnect(DisconnectRequest(user=""))) == 107, "a user is needed"
    # No connection has this session, so the event of the next call is the first one.
    await api.disconnect(DisconnectRequest(user="bob", session="s", disconnect=Disconnect(code=4600, reason="wrong")))
    await api.disconnect(DisconnectRequest(user="bob"))
    assert await bob.events.events.get() == ("disconnected", 3503, "force disconnect")
    await second.disconnect()
    print("connections")


async def main():
    async with AsyncClient(f"http://{ADDRESS}/push/api", "0123456789abcdef") as api:
        await messages(api)
        alice, bob = await lists(api)
        second = await subscriptions(api, alice)
        await connections(api, alice, second, bob)


asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
