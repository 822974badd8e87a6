// The client library of Centrifugo for JavaScript against a push hub: what its users rely on.
// Arguments: the folder of the packages, the address of the hub, json or protobuf, the transport, the file of the private key
// that signs tokens (without it, the secret of the test does). Prints a word for each part that works.
import { createHmac, createPrivateKey, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [folder, address, protocol, transport = "websocket", keyFile] = process.argv.slice(2);
const isProtobuf = protocol === "protobuf";
const load = createRequire(`${folder}/`);
const { Centrifuge } = load(isProtobuf ? "centrifuge/build/protobuf" : "centrifuge");
const WebSocket = load("ws");

const KEY = "0123456789abcdef";
const LIMIT_MS = 60000;
const ROOM = "chat:room";

/** Messages of Protobuf contain bytes, those of JSON values. */
const pack = (value) => (isProtobuf ? new TextEncoder().encode(JSON.stringify(value)) : value);
const unpack = (data) => (isProtobuf ? JSON.parse(new TextDecoder().decode(data)) : data);

const base64 = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
const key = keyFile && createPrivateKey(readFileSync(keyFile));
function token(claims) {
  const alg = !key ? "HS256" : key.asymmetricKeyType === "ed25519" ? "EdDSA" : "RS256";
  const signed = `${base64({ alg, typ: "JWT" })}.${base64({ aud: "app", iss: "https://id.example", ...claims })}`;
  const signature = !key
    ? createHmac("sha256", "a-secret-of-the-test").update(signed).digest()
    : sign(alg === "EdDSA" ? null : "sha256", Buffer.from(signed), key);
  return `${signed}.${signature.toString("base64url")}`;
}
/** So many seconds from now. */
const after = (seconds) => Math.floor(Date.now() / 1000) + seconds;

const DELAYS = { minReconnectDelay: 50, maxReconnectDelay: 200 };

/** A client without WebSocket: an endless response, and requests. */
function streamingClient(options, hub) {
  let cut = () => {};
  const cuttable = (url, init = {}) => {
    const own = new AbortController();
    init.signal?.addEventListener("abort", () => own.abort());
    if (!url.endsWith("/emulation")) cut = () => own.abort();
    return fetch(url, { ...init, signal: own.signal });
  };
  // Node has no EventSource.
  class Events {
    constructor(url) {
      this.stop = new AbortController();
      this.read(url).catch((error) => this.stop.signal.aborted || this.onerror(error));
    }

    async read(url) {
      const response = await cuttable(url, { signal: this.stop.signal, headers: { accept: "text/event-stream" } });
      assert(response.headers.get("content-type") === "text/event-stream", "a stream of events");
      this.onopen();
      let text = "";
      for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
        const events = (text + piece).split("\n\n");
        text = events.pop();
        for (const event of events) this.onmessage({ data: event.trim().replace(/^data: /, "") });
      }
      this.onerror(new Error("the end of the events"));
    }

    close() {
      this.stop.abort();
    }
  }
  const base = `http://${address}/${hub}`;
  const one = new Centrifuge([{ transport, endpoint: `${base}/connection/${transport}` }], {
    emulationEndpoint: `${base}/emulation`, fetch: cuttable, eventsource: Events, readableStream: ReadableStream,
    ...DELAYS, ...options,
  });
  one.cutConnection = () => cut();
  return one;
}

/** A client, and its newest socket. */
function client(options, hub = "push") {
  if (transport !== "websocket") return streamingClient(options, hub);
  const sockets = [];
  class Socket extends WebSocket {
    constructor(...args) {
      super(...args);
      sockets.push(this);
    }
  }
  const one = new Centrifuge(`ws://${address}/${hub}/connection/websocket`, { websocket: Socket, ...DELAYS, ...options });
  one.cutConnection = () => sockets.at(-1).terminate();
  return one;
}

async function api(method, body) {
  const headers = { "X-API-Key": KEY };
  const response = await fetch(`http://${address}/push/api/${method}`, { method: "POST", headers, body: JSON.stringify(body) });
  const { result, error } = await response.json();
  assert(!error, `${method}: ${JSON.stringify(error)}`);
  return result;
}

function assert(holds, what) {
  if (!holds) throw new Error(what);
}

function once(emitter, event) {
  return new Promise((resolve) => emitter.once(event, resolve));
}

/** Collects the numbers of publications; `wait` resolves when there are so many. */
function collect(subscription) {
  const data = [];
  let check = () => {};
  subscription.on("publication", (context) => {
    data.push(unpack(context.data).n);
    check();
  });
  const wait = (count) => new Promise((resolve) => {
    check = () => data.length >= count && resolve();
    check();
  });
  return { data, wait };
}

function numbers(from, to) {
  return Array.from({ length: to - from + 1 }, (_, at) => from + at);
}

async function connectAndSubscribe() {
  const alice = client({ token: token({ sub: "alice", info: { name: "Alice" } }) });
  const bob = client({ token: token({ sub: "bob" }) });
  const connected = once(alice, "connected");
  // Commands of one frame: the subscription travels with the connection.
  const room = alice.newSubscription(ROOM);
  room.subscribe();
  const subscription = once(room, "subscribed");
  alice.connect();
  assert((await connected).client.length === 36, "a name of the client");
  const subscribed = await subscription;
  assert(subscribed.recoverable && subscribed.positioned, "recovery");
  bob.connect();
  await once(bob, "connected");
  const other = bob.newSubscription(ROOM);
  const joined = new Promise((resolve) => room.on("join", (context) => context.info.user === "bob" && resolve()));
  other.subscribe();
  await Promise.all([once(other, "subscribed"), joined]);
  console.log("subscribe");
  return { alice, bob, room, other };
}

async function publishAndRead({ room, other }) {
  const [mine, theirs] = [collect(room), collect(other)];
  for (const n of numbers(1, 20)) await api("publish", { channel: ROOM, data: { n } });
  await other.publish(pack({ n: 21 }));
  await Promise.all([mine.wait(21), theirs.wait(21)]);
  const expected = numbers(1, 21).join();
  assert(mine.data.join() === expected && theirs.data.join() === expected, `order: ${mine.data}`);
  console.log("publish");

  const history = await room.history({ limit: 3, reverse: true });
  assert(history.publications.map((one) => unpack(one.data).n).join() === "21,20,19", "history");
  assert(history.publications[0].info.user === "bob" && history.offset === 21, "publisher");
  const since = { offset: 18, epoch: history.epoch };
  const later = await room.history({ limit: 2, since });
  assert(later.publications.map((one) => one.offset).join() === "19,20", "history since a position");
  const failure = await room.history({ limit: 2, since: { offset: 18, epoch: "other" } }).catch((error) => error);
  assert(failure.code === 112, "history of another epoch");
  console.log("history");

  const presence = await room.presence();
  const users = Object.values(presence.clients).map((one) => one.user).sort();
  assert(users.join() === "alice,bob", `presence: ${users}`);
  const named = Object.values(presence.clients).find((one) => one.user === "alice");
  assert(unpack(named.connInfo).name === "Alice", "info of the token");
  const stats = await room.presenceStats();
  assert(stats.numClients === 2 && stats.numUsers === 2, "counts");
  console.log("presence");
  return theirs;
}

async function recover({ alice, bob, room, other }, theirs) {
  const left = new Promise((resolve) => room.on("leave", (context) => context.info.user === "bob" && resolve()));
  bob.disconnect();
  await left;
  for (const n of numbers(22, 30)) await api("publish", { channel: ROOM, data: { n } });
  const again = once(other, "subscribed");
  bob.connect();
  const context = await again;
  assert(context.wasRecovering && context.recovered, "recovered");
  await theirs.wait(30);
  assert(theirs.data.slice(21).join() === numbers(22, 30).join(), `missed: ${theirs.data}`);

  // The connection is cut while messages are published.
  const cut = once(other, "subscribed");
  for (const n of numbers(31, 90)) {
    await api("publish", { channel: ROOM, data: { n } });
    if (n === 40) bob.cutConnection();
  }
  assert((await cut).recovered, "recovered after the cut");
  await theirs.wait(90);
  assert(theirs.data.join() === numbers(1, 90).join(), `around the cut: ${theirs.data}`);
  console.log("recovery");

  bob.disconnect();
  for (const n of numbers(91, 200)) await api("publish", { channel: ROOM, data: { n } });
  const late = once(other, "subscribed");
  bob.connect();
  const lost = await late;
  assert(lost.wasRecovering && !lost.recovered, "told that messages are lost");
  console.log("lost");
  room.unsubscribe();
  alice.disconnect();
  bob.disconnect();
}

/** Tokens of connections and subscriptions are renewed when they end. */
async function renewTokens() {
  let asked = 0;
  const spans = [4, 1000];
  let renewed = () => {};
  const getToken = async () => {
    if (asked === 1) renewed();
    return token({ sub: "carol", exp: after(spans[asked++] ?? 1000) });
  };
  const done = new Promise((resolve) => { renewed = resolve; });
  // The library gets a new token if the hub refuses the first one as expired.
  const carol = client({ token: token({ sub: "carol", exp: 1000 }), getToken });
  const errors = [];
  carol.on("error", (context) => errors.push(context.error.code));
  carol.connect();
  await once(carol, "connected");
  assert(errors.length > 0 && errors.every((code) => code === 109), `an expired token: ${errors}`);

  let subscriptions = 0;
  const own = "closed:own";
  let ready = () => {};
  const again = new Promise((resolve) => { ready = resolve; });
  const subscription = carol.newSubscription(own, {
    getToken: async () => {
      subscriptions += 1;
      if (subscriptions === 2) ready();
      return token({ sub: "carol", channel: own, exp: after(subscriptions === 1 ? 4 : 1000) });
    },
  });
  subscription.subscribe();
  await once(subscription, "subscribed");
  await Promise.all([done, again]);
  // The hub has accepted both: a command succeeds on the same connection.
  const failure = await subscription.publish(pack({})).catch((error) => error);
  assert(failure.code === 103 && carol.state === "connected" && subscription.state === "subscribed", "renewed");
  carol.disconnect();
  console.log("tokens");
}

async function rights() {
  const nobody = client({});
  const refused = once(nobody, "disconnected");
  nobody.connect();
  assert((await refused).code === 3501, "no token");
  const forged = client({ token: token({ sub: "eve" }).slice(0, -4) + "AAAA" });
  const invalid = once(forged, "disconnected");
  forged.connect();
  assert((await invalid).code === 3500, "a forged token");

  const dave = client({ token: token({ sub: "dave" }) });
  dave.connect();
  for (const [channel, code] of [["closed", 103], ["unknown:a", 102], ["$chat:own", 103]]) {
    const closed = dave.newSubscription(channel);
    const denied = once(closed, "unsubscribed");
    closed.subscribe();
    assert((await denied).code === code, `${channel}: ${(await denied).code}`);
  }
  // Replies of requests come in any order.
  const refusals = [[dave.publish(ROOM, pack({})), 103], [dave.history(ROOM, {}), 103], [dave.presence("closed:a"), 108],
    [dave.rpc("method", pack({})), 108]].map(([what, code]) => [what.catch((error) => error), code]);
  for (const [what, code] of refusals) {
    const failure = await what;
    assert(failure.code === code, `${failure.code} in place of ${code}`);
  }
  dave.disconnect();

  const anonymous = client({}, "open");
  const room = anonymous.newSubscription("news");
  const got = once(room, "publication");
  room.subscribe();
  anonymous.connect();
  await once(room, "subscribed");
  await room.publish(pack({ text: "\u{1f30a}" }));
  assert(unpack((await got).data).text === "\u{1f30a}", "text");
  const removed = once(room, "unsubscribed");
  room.unsubscribe();
  assert((await removed).code === 0, "unsubscribed");
  anonymous.disconnect();
  console.log("rights");
}

/** Most messages come as patches of the previous message, even after a recovery. */
async function deltas() {
  const erin = client({ token: token({ sub: "erin" }) });
  const document = erin.newSubscription("doc:a", { delta: "fossil" });
  document.subscribe();
  erin.connect();
  await once(document, "subscribed");
  const received = collect(document);
  const texts = [];
  document.on("publication", (context) => texts.push(unpack(context.data).text));
  const text = "the p\u{e4}rt \u{1f30a} that \"stays\" the same ".repeat(20);
  for (const n of numbers(1, 60)) {
    await api("publish", { channel: "doc:a", data: { n, text: n % 20 ? `${text}${n}` : "" } });
    if (n !== 30) continue;
    // Messages that are recovered come whole.
    await received.wait(30);
    erin.cutConnection();
  }
  await received.wait(60);
  assert(received.data.join() === numbers(1, 60).join(), `order: ${received.data}`);
  assert(texts.every((one, at) => one === ((at + 1) % 20 ? `${text}${at + 1}` : "")), "the texts");
  const { numDeltaPayloads } = document.deltaStats();
  assert(numDeltaPayloads >= 27, `patches: ${numDeltaPayloads}`);
  erin.disconnect();
  console.log("deltas");
}

/** A filter selects messages by their tags, also those that are recovered. A client does not get its own messages. */
async function filters() {
  const frank = client({ token: token({ sub: "frank" }) });
  const odd = { key: "parity", cmp: "eq", val: "odd" };
  const document = frank.newSubscription("doc:own#erin,frank", { tagsFilter: odd });
  const others = frank.newSubscription("doc:own#erin");
  const denied = once(others, "unsubscribed");
  document.subscribe();
  others.subscribe();
  frank.connect();
  await once(document, "subscribed");
  assert((await denied).code === 103, "a channel of another user");
  const received = collect(document);
  await document.publish(pack({ n: 0 }));
  const publish = async (from, to) => {
    for (const n of numbers(from, to)) {
      const tags = { parity: n % 2 ? "odd" : "even" };
      await api("publish", { channel: document.channel, data: { n }, tags });
    }
  };
  await publish(1, 10);
  frank.disconnect();
  await publish(11, 19);
  const again = once(document, "subscribed");
  frank.connect();
  assert((await again).recovered, "recovered with a filter");
  await publish(20, 29);
  await received.wait(15);
  assert(received.data.join() === numbers(1, 29).filter((n) => n % 2).join(), `filtered: ${received.data}`);
  const wrong = frank.newSubscription("doc:b", { tagsFilter: { op: "xor", nodes: [odd] } });
  const refused = once(wrong, "unsubscribed");
  wrong.subscribe();
  assert((await refused).code === 107, "a wrong filter");
  frank.disconnect();
  console.log("filters");
}

const limit = setTimeout(() => {
  console.log("timeout");
  process.exit(1);
}, LIMIT_MS);
try {
  const clients = await connectAndSubscribe();
  const theirs = await publishAndRead(clients);
  await recover(clients, theirs);
  await renewTokens();
  await rights();
  await deltas();
  await filters();
} catch (error) {
  console.log(error instanceof Error ? error.stack : JSON.stringify(error));
}
clearTimeout(limit);
process.exit(0);
