// The client library of Centrifugo for JavaScript against a push hub that asks a backend, which is here, too.
// Arguments: the folder of the packages, the socket of the backend, the address of the hub, json or protobuf. Prints a word for
// each part that works.
import { createRequire } from "node:module";
import http from "node:http";

const [folder, path, address, protocol] = process.argv.slice(2);
const isProtobuf = protocol === "protobuf";
const load = createRequire(`${folder}/`);
const { Centrifuge } = load(isProtobuf ? "centrifuge/build/protobuf" : "centrifuge");
const WebSocket = load("ws");
const LIMIT_MS = 60000;

const pack = (value) => (isProtobuf ? new TextEncoder().encode(JSON.stringify(value)) : value);
const unpack = (data) => (isProtobuf ? JSON.parse(new TextDecoder().decode(data)) : data);

function assert(holds, what) {
  if (!holds) throw new Error(what);
}

function once(emitter, event) {
  return new Promise((resolve) => emitter.once(event, resolve));
}

/** What the backend was sent, by path. */
const seen = {};
let renewals = 0;
let asking = 0;
let watchers = [];
/** At least two seconds from now, so that a grant that arrives late is not over. */
const soon = () => Math.floor(Date.now() / 1000) + 3;

const verdicts = {
  "/connect": (body, headers) => {
    if (body.data?.is === "gone") return { disconnect: { code: 4501, reason: "gone" } };
    if (headers.cookie !== "session=7") return {};
    const expire_at = body.data?.is === "brief" ? soon() : 0;
    return { result: { user: "7", info: { name: "Ann" }, data: { hello: 1 }, meta: { m: 1 }, channels: ["news"], expire_at } };
  },
  "/refresh": () => (++renewals > 1 ? { result: { expired: true } } : { result: { expire_at: soon() } }),
  "/subscribe": (body) => body.channel === "secret"
    ? { error: { code: 103, message: "permission denied" } }
    : { result: { info: { role: "host" }, data: { for: body.user } } },
  "/publish": (body) => ({ result: { data: { text: body.data.text.toUpperCase() } } }),
  "/rpc": (body) => body.method === "add"
    ? { result: { data: { sum: body.data.a + body.data.b } } }
    : { error: { code: 1000, message: "no such method" } },
  "/events": () => ({ result: {} }),
};

function backend() {
  return http.createServer(async (request, response) => {
    let text = "";
    for await (const piece of request) text += piece;
    const body = JSON.parse(text);
    asking += request.url === "/events" ? 0 : 1;
    (seen[request.url] ??= []).push({ body, headers: request.headers, asking });
    watchers = watchers.filter((watch) => !watch());
    // Calls of one client would overlap here.
    setTimeout(() => {
      asking -= request.url === "/events" ? 0 : 1;
      response.setHeader("Content-Type", "application/json");
      response.end(JSON.stringify(verdicts[request.url](body, request.headers)));
    }, 10);
  });
}

async function listen() {
  const server = backend();
  server.listen(path);
  await once(server, "listening");
  return server;
}

/** Waits until the backend was sent an event. */
function event(of) {
  const find = () => (seen["/events"] ?? []).flatMap((one) => one.body.events).find(of);
  return new Promise((resolve) => watchers.push(() => (find() ? (resolve(find()), true) : false)));
}

function client(cookie, data) {
  class Socket extends WebSocket {
    constructor(url, protocols) {
      super(url, protocols, { headers: cookie ? { cookie } : {} });
    }
  }
  const options = { websocket: Socket, data: data && pack(data), minReconnectDelay: 20, maxReconnectDelay: 50 };
  return new Centrifuge(`ws://${address}/push/connection/websocket`, options);
}

async function connect() {
  const one = client("session=7", { lang: "en" });
  const news = once(one, "subscribed");
  const connected = once(one, "connected");
  one.connect();
  assert(unpack((await connected).data).hello === 1, "data of the backend");
  assert((await news).channel === "news", "a channel of the backend");
  const { body, headers } = seen["/connect"].at(-1);
  assert(body.data.lang === "en" && body.transport === "websocket" && body.protocol === protocol, "connect");
  assert(body.name === "js" && body.client.length === 36 && body.encoding === "json", "facts about the client");
  assert(headers.cookie === "session=7" && headers["x-forwarded-for"] === "127.0.0.1", "fields");
  assert(headers["content-type"] === "application/json", "type");
  console.log("connect");
  return one;
}

async function refusals() {
  const unknown = client("");
  const left = once(unknown, "disconnected");
  unknown.connect();
  assert((await left).code === 3501, "a client that the backend does not know");
  const gone = client("session=7", { is: "gone" });
  const parted = once(gone, "disconnected");
  gone.connect();
  const { code, reason } = await parted;
  assert(code === 4501 && reason === "gone", "a disconnect of the backend");
  console.log("refusals");
}

async function subscribe(one) {
  const room = one.newSubscription("room", { data: pack({ seat: 3 }) });
  const subscribed = once(room, "subscribed");
  room.subscribe();
  assert(unpack((await subscribed).data).for === "7", "data of a subscription");
  assert(seen["/subscribe"].at(-1).body.data.seat === 3 && seen["/subscribe"].at(-1).body.meta.m === 1, "its question");
  const { clients } = await room.presence();
  const info = Object.values(clients)[0];
  assert(unpack(info.connInfo).name === "Ann" && unpack(info.chanInfo).role === "host", "presence");
  const secret = one.newSubscription("secret");
  const refused = once(secret, "unsubscribed");
  secret.subscribe();
  assert((await refused).code === 103, "a subscription that is refused");
  const publication = once(room, "publication");
  await room.publish(pack({ text: "hello" }));
  assert(unpack((await publication).data).text === "HELLO", "a message that the backend changes");
  console.log("subscribe");
  return room;
}

async function call(one) {
  const calls = [1, 2, 3].map((b) => one.rpc("add", pack({ a: 1, b })));
  const sums = (await Promise.all(calls)).map((reply) => unpack(reply.data).sum);
  assert(sums.join() === "2,3,4", `sums: ${sums}`);
  assert(seen["/rpc"].every((question) => question.asking === 1), "one question of a client at a time");
  const failure = await one.rpc("other", pack(null)).catch((error) => error);
  assert(failure.code === 1000 && failure.message === "no such method", "an error of the backend");
  const unknown = await one.rpc("chat:add", pack(null)).catch((error) => error);
  assert(unknown.code === 104, "an unknown namespace");
  console.log("rpc");
}

async function down(one, server) {
  const closed = once(server, "close");
  server.close();
  server.closeAllConnections();
  await closed;
  const failure = await one.rpc("add", pack({ a: 1, b: 2 })).catch((error) => error);
  assert(failure.code === 100 && failure.temporary === true, `down: ${failure.code}`);
  const late = client("session=7");
  const failed = once(late, "error");
  const connected = once(late, "connected");
  late.connect();
  assert((await failed).error.code === 100, "connect while the backend is down");
  const again = await listen();
  await connected;
  late.disconnect();
  const reply = await one.rpc("add", pack({ a: 1, b: 2 }));
  assert(unpack(reply.data).sum === 3, "the backend is back");
  console.log("down");
  return again;
}

async function renewal() {
  const brief = client("session=7", { is: "brief" });
  const connected = once(brief, "connected");
  const left = once(brief, "connecting");
  brief.connect();
  await connected;
  await left;
  const ended = new Promise((resolve) => brief.on("connecting", resolve));
  assert((await ended).code === 3005 && renewals > 1, "the end of a connection that is not renewed");
  brief.disconnect();
  console.log("renewal");
}

async function events(one, room) {
  const vacated = event((known) => known.channel === "room" && known.type === "vacated");
  room.unsubscribe();
  await vacated;
  const name = seen["/connect"][0].body.client;
  const departed = event((known) => known.client === name && known.type === "disconnected");
  one.disconnect();
  assert((await departed).user === "7", "the user that has left");
  console.log("events");
}

const limit = setTimeout(() => {
  console.error("too slow");
  process.exit(1);
}, LIMIT_MS);
let server = await listen();
const one = await connect();
await refusals();
const room = await subscribe(one);
await call(one);
server = await down(one, server);
await renewal();
await events(one, room);
clearTimeout(limit);
server.close();
server.closeAllConnections();
process.exit(0);
