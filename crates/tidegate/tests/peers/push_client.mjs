// The client library of Centrifugo for JavaScript against a push hub: what its users rely on.
// Arguments: the folder of the packages, the address of the hub. Prints a word for each part that works.
import { createHmac } from "node:crypto";
import { createRequire } from "node:module";

const [folder, address] = process.argv.slice(2);
const load = createRequire(`${folder}/`);
const { Centrifuge } = load("centrifuge");
const WebSocket = load("ws");

const KEY = "0123456789abcdef";
const LIMIT_MS = 20000;

const base64 = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
function token(claims) {
  const signed = `${base64({ alg: "HS256", typ: "JWT" })}.${base64(claims)}`;
  return `${signed}.${createHmac("sha256", "a-secret-of-the-test").update(signed).digest("base64url")}`;
}

function client(claims) {
  const options = { websocket: WebSocket, minReconnectDelay: 50, maxReconnectDelay: 200 };
  if (claims) options.token = token(claims);
  return new Centrifuge(`ws://${address}/push/connection/websocket`, options);
}

async function api(method, body) {
  const headers = { "X-API-Key": KEY };
  const response = await fetch(`http://${address}/push/api/${method}`, { method: "POST", headers, body: JSON.stringify(body) });
  return response.json();
}

function assert(holds, what) {
  if (!holds) throw new Error(what);
}

function once(emitter, event) {
  return new Promise((resolve) => emitter.once(event, resolve));
}

/** Collects the data of publications; `wait` resolves when there are so many. */
function collect(subscription) {
  const data = [];
  let check = () => {};
  subscription.on("publication", (context) => {
    data.push(context.data.n);
    check();
  });
  const wait = (count) => new Promise((resolve) => {
    check = () => data.length >= count && resolve();
    check();
  });
  return { data, wait };
}

async function connectAndSubscribe() {
  const alice = client({ sub: "alice", info: { name: "Alice" } });
  const bob = client({ sub: "bob" });
  const connected = once(alice, "connected");
  alice.connect();
  bob.connect();
  assert((await connected).client.length === 36, "a name of the client");
  const room = alice.newSubscription("chat:room");
  const other = bob.newSubscription("chat:room");
  const joined = new Promise((resolve) => room.on("join", (context) => context.info.user === "bob" && resolve()));
  room.subscribe();
  const subscribed = await once(room, "subscribed");
  assert(subscribed.recoverable && subscribed.positioned, "recovery");
  other.subscribe();
  await Promise.all([once(other, "subscribed"), joined]);
  console.log("subscribe");

  const [mine, theirs] = [collect(room), collect(other)];
  for (let n = 1; n <= 20; n++) await api("publish", { channel: "chat:room", data: { n } });
  await other.publish({ n: 21 });
  await Promise.all([mine.wait(21), theirs.wait(21)]);
  const expected = Array.from({ length: 21 }, (_, at) => at + 1).join();
  assert(mine.data.join() === expected && theirs.data.join() === expected, `order: ${mine.data}`);
  console.log("publish");

  const history = await room.history({ limit: 3, reverse: true });
  assert(history.publications.map((one) => one.data.n).join() === "21,20,19", "history");
  assert(history.publications[0].info.user === "bob" && history.offset === 21, "publisher");
  const presence = await room.presence();
  const users = Object.values(presence.clients).map((one) => one.user).sort();
  assert(users.join() === "alice,bob", `presence: ${users}`);
  const named = Object.values(presence.clients).find((one) => one.user === "alice");
  assert(named.connInfo.name === "Alice", "info of the token");
  const stats = await room.presenceStats();
  assert(stats.numClients === 2 && stats.numUsers === 2, "counts");
  console.log("presence");

  const left = new Promise((resolve) => room.on("leave", (context) => context.info.user === "bob" && resolve()));
  bob.disconnect();
  await left;
  for (let n = 22; n <= 30; n++) await api("publish", { channel: "chat:room", data: { n } });
  const again = once(other, "subscribed");
  bob.connect();
  const context = await again;
  assert(context.wasRecovering && context.recovered, "recovered");
  await theirs.wait(30);
  assert(theirs.data.slice(21).join() === "22,23,24,25,26,27,28,29,30", `missed: ${theirs.data}`);
  console.log("recovery");

  bob.disconnect();
  for (let n = 31; n <= 140; n++) await api("publish", { channel: "chat:room", data: { n } });
  const late = once(other, "subscribed");
  bob.connect();
  const lost = await late;
  assert(lost.wasRecovering && !lost.recovered, "told that messages are lost");
  console.log("lost");
  room.unsubscribe();
  alice.disconnect();
  bob.disconnect();
}

async function rights() {
  const nobody = client();
  const refused = once(nobody, "disconnected");
  nobody.connect();
  assert((await refused).code === 3501, "no token");
  const forged = new Centrifuge(`ws://${address}/push/connection/websocket`, {
    websocket: WebSocket,
    token: token({ sub: "eve" }).slice(0, -4) + "AAAA",
  });
  const invalid = once(forged, "disconnected");
  forged.connect();
  assert((await invalid).code === 3500, "a forged token");
  const carol = client({ sub: "carol" });
  carol.connect();
  const closed = carol.newSubscription("closed");
  const denied = once(closed, "unsubscribed");
  closed.subscribe();
  assert((await denied).code === 103, "permission denied");
  const own = carol.newSubscription("closed:own", { token: token({ sub: "carol", channel: "closed:own" }) });
  own.subscribe();
  await once(own, "subscribed");
  const failure = await own.publish({}).catch((error) => error);
  assert(failure.code === 103, "publishing is denied");
  carol.disconnect();
  console.log("rights");
}

const limit = setTimeout(() => {
  console.log("timeout");
  process.exit(1);
}, LIMIT_MS);
try {
  await connectAndSubscribe();
  await rights();
} catch (error) {
  console.log(String(error));
}
clearTimeout(limit);
process.exit(0);
