// web/client/tidegate.js against a push hub: what its users rely on.
// Arguments: the folder of the packages, the client, the address of the hub, websocket or sse. Prints a word for each part that
// works.
import { createHmac } from "node:crypto";
import { createRequire } from "node:module";

const [folder, file, address, transport] = process.argv.slice(2);
const LIMIT_MS = 60000;
const ROOM = "chat:room";
const BASE = `http://${address}/push`;

/** Cuts the newest connection. */
let cut = () => {};
/** No connection can be opened. */
let isDown = false;
const WebSocketOfNode = createRequire(`${folder}/`)("ws");
class CuttableSocket extends WebSocketOfNode {
  constructor(...args) {
    super(...args);
    cut = () => this.terminate();
  }
}
class BrokenSocket {
  constructor() {
    setTimeout(() => this.onclose({}));
  }

  close() {}
}
globalThis.WebSocket = function (url) {
  return isDown || transport === "broken" ? new BrokenSocket() : new CuttableSocket(url);
};
// Node has no EventSource.
globalThis.EventSource = class {
  #stop = new AbortController();
  #reader;

  constructor(url) {
    if (isDown) {
      setTimeout(() => this.onerror());
      return;
    }
    cut = () => this.close();
    this.#read(url).catch(() => {}).then(() => this.onerror());
  }

  async #read(url) {
    const response = await fetch(url, { signal: this.#stop.signal });
    this.#reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value: piece } = await this.#reader.read();
      if (done) return;
      const events = (text + piece).split("\n\n");
      text = events.pop();
      for (const event of events) this.onmessage({ data: event.trim().replace(/^data: /, "") });
    }
  }

  // Node 18 forgets the signal of a response that has begun, once garbage is collected.
  close() {
    this.#stop.abort();
    this.#reader?.cancel().catch(() => {});
  }
};

const { connect } = await import(file);

const base64 = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
function token(claims) {
  const signed = `${base64({ alg: "HS256", typ: "JWT" })}.${base64(claims)}`;
  return `${signed}.${createHmac("sha256", "a-secret-of-the-test").update(signed).digest("base64url")}`;
}

function assert(holds, what) {
  if (!holds) throw new Error(what);
}

async function until(holds, what) {
  const end = Date.now() + LIMIT_MS / 3;
  while (!holds()) {
    assert(Date.now() < end, what);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const transports = transport === "broken" ? ["websocket", "sse"] : [transport];
const open = (options) => connect(BASE, { transports, minDelay: 50, maxDelay: 200, ...options });

async function api(method, body) {
  const headers = { "X-API-Key": "0123456789abcdef" };
  const response = await fetch(`${BASE}/api/${method}`, { method: "POST", headers, body: JSON.stringify(body) });
  assert(response.ok, method);
}

async function talk() {
  const [mine, theirs, visits] = [[], [], []];
  const alice = open({ token: token({ sub: "alice" }) });
  const room = alice.subscribe(ROOM, (data) => mine.push(data.n), { join: (who) => visits.push(`+${who.user}`), leave: (who) => visits.push(`-${who.user}`) });
  await room.joinedOnce;
  assert(alice.state === "connected" && alice.id.length === 36, "connected");
  const bob = open({ token: token({ sub: "bob" }) });
  const other = bob.subscribe(ROOM, (data) => theirs.push(data.n));
  await other.joinedOnce;
  for (let n = 1; n <= 10; n += 1) await (n % 2 ? room : other).publish({ n });
  const expected = "1,2,3,4,5,6,7,8,9,10";
  await until(() => mine.join() === expected && theirs.join() === expected, `messages: ${mine} ${theirs}`);
  console.log("talk");

  const { publications, offset } = await room.history({ limit: 2, reverse: true });
  assert(publications.map((one) => one.data.n).join() === "10,9" && offset === 10, "history");
  console.log("history");

  await until(() => visits.includes("+bob"), `joins: ${visits}`);
  const users = (await room.presence()).map((one) => one.user).sort().join();
  const counts = await other.presenceStats();
  assert(users === "alice,bob" && counts.clients === 2 && counts.users === 2, `presence: ${users}`);
  console.log("presence");

  other.unsubscribe();
  await until(() => visits.includes("-bob"), `leaves: ${visits}`);
  bob.close();
  assert(bob.state === "closed", "closed");
  alice.close();
}

async function recover() {
  const [got, states] = [[], []];
  let lost = 0;
  const carol = open({ token: token({ sub: "carol" }), state: (state) => states.push(state) });
  const room = carol.subscribe(ROOM, (data) => got.push(data.n), { lost: () => { lost += 1; } });
  await room.joinedOnce;
  for (let n = 100; n < 140; n += 1) {
    await api("publish", { channel: ROOM, data: { n } });
    if (n === 110) cut();
  }
  await until(() => got.at(-1) === 139, `after the cut: ${got}`);
  assert(got.join() === Array.from({ length: 40 }, (_, at) => 100 + at).join() && lost === 0, `recovery: ${got}`);
  assert(states.join() === "connecting,connected,connecting,connected", `states: ${states}`);
  console.log("recovery");

  // More than the history keeps.
  isDown = true;
  cut();
  await Promise.all(Array.from({ length: 150 }, (_, at) => api("publish", { channel: ROOM, data: { n: 200 + at } })));
  isDown = false;
  await until(() => lost === 1 && room.isJoined, "told that messages are lost");
  carol.close();
  console.log("lost");
}

async function rights() {
  const reasons = [];
  const forged = open({ token: `${token({ sub: "eve" }).slice(0, -4)}AAAA`, state: (...why) => reasons.push(why.join()) });
  await until(() => forged.state === "closed", "a forged token is final");
  assert(reasons.at(-1) === "closed,3500,invalid token", `${reasons}`);
  let asked = 0;
  const late = open({ getToken: () => token({ sub: "dave", exp: asked++ ? undefined : 1000 }) });
  await until(() => late.state === "connected", "a new token in place of an expired one");
  assert(asked === 2, `tokens: ${asked}`);
  const refused = await late.subscribe("closed", () => {}).joinedOnce.catch((error) => error);
  assert(refused.code === 103 && refused.name === "PushError", `${refused}`);
  const failure = await late.publish("unknown:a", {}).catch((error) => error);
  assert(failure.code === 102, `${failure}`);
  late.close();
  const after = await late.publish(ROOM, {}).catch((error) => error);
  assert(after.code === 0 && after.temporary, "no command without a connection");
  console.log("rights");
}

/** Errors of the page's own callbacks. */
const reported = [];
process.on("uncaughtException", ({ message }) => reported.push(message));

/** A promise that the test settles. */
function later() {
  let settle;
  const promise = new Promise((resolve, reject) => { settle = { resolve, reject }; });
  return Object.assign(promise, settle);
}

async function renewal() {
  let asked = 0;
  const ends = Math.floor(Date.now() / 1000) + 30 * 86400;
  const getToken = () => {
    asked += 1;
    return token({ sub: "frank", exp: ends });
  };
  const frank = open({ getToken });
  const room = await frank.subscribe(ROOM, () => {}).joinedOnce;
  for (let n = 0; n < 20; n += 1) await room.presenceStats();
  assert(asked === 1, `a token of 30 days was renewed ${asked} times`);
  frank.close();
  console.log("renewal");
}

async function again() {
  const ends = [];
  const ended = (...why) => ends.push(why.join());
  let connections = 0;
  const grace = open({ token: token({ sub: "grace" }), state: (state) => { connections += state === "connected"; } });
  await until(() => connections === 1, "connected");
  // The connection is lost while the token of the subscription is awaited.
  const [tokens, got] = [[], []];
  const channel = "closed:a";
  const getToken = () => {
    tokens.push(later());
    return tokens.at(-1);
  };
  const slow = grace.subscribe(channel, (data) => got.push(data.n), { ended, getToken });
  await until(() => tokens.length === 1, "the first token");
  cut();
  await until(() => tokens.length === 2, "the second token");
  tokens.forEach((one) => one.resolve(token({ sub: "grace", channel })));
  await slow.joinedOnce;
  await grace.presenceStats(ROOM).catch(() => {});
  await api("publish", { channel, data: { n: 1 } });
  await until(() => got.length > 0 || ends.length > 0, "a message");
  assert(got.join() === "1" && ends.length === 0, `joined twice: ${got}; ${ends}`);

  // A component is mounted, unmounted and mounted again, each time before the hub has answered.
  const seen = [];
  for (let n = 0; n < 3; n += 1) {
    const first = grace.subscribe(ROOM, () => seen.push("left"), { ended });
    for (let step = 0; step < 10 * n; step += 1) await null;
    first.unsubscribe();
    const second = grace.subscribe(ROOM, (data) => seen.push(data.n), { ended });
    await second.joinedOnce;
    await second.publish({ n });
    await until(() => seen.length > n || ends.length > 0, "a message");
    assert(ends.length === 0, `ended: ${ends}`);
    second.unsubscribe();
  }
  assert(seen.join() === "0,1,2", `messages: ${seen}`);
  grace.close();
  console.log("again");
}

async function subscribedByApplication() {
  const got = [];
  const ends = [];
  const channel = "closed:b";
  let lost = 0;
  const heidi = open({ token: token({ sub: "heidi" }) });
  await until(() => heidi.state === "connected", "connected");
  await api("subscribe", { user: "heidi", channel });
  const room = heidi.subscribe(channel, (data) => got.push(data.n), {
    ended: (...why) => ends.push(why.join()), getToken: () => token({ sub: "heidi", channel }), lost: () => { lost += 1; },
  });
  await room.joinedOnce;
  await api("publish", { channel, data: { n: 1 } });
  await until(() => got.join() === "1", `messages: ${got}; ended: ${ends}`);
  assert(lost === 0, `lost: ${lost}`);
  // The client cannot ask for what it misses, because it does not know its position.
  cut();
  await until(() => lost > 0, "told that messages may be lost");
  await api("publish", { channel, data: { n: 2 } });
  await until(() => got.join() === "1,2", `messages: ${got}; ended: ${ends}`);
  cut();
  await until(() => !room.isJoined, "a lost connection");
  await until(() => room.isJoined, "a new connection");
  assert(lost === 1, `lost: ${lost}`);
  heidi.close();
  console.log("subscribed");
}

/** Subscribes where applications do it: as soon as the client is connected. */
async function subscribedWhenConnected() {
  const [got, ends] = [[], []];
  let lost = 0;
  let room;
  const kim = open({
    token: token({ sub: "kim" }),
    state: (state) => {
      if (state !== "connected" || room) return;
      const options = { lost: () => { lost += 1; }, ended: (...why) => ends.push(why.join()) };
      room = kim.subscribe(ROOM, (data) => got.push(data.n), options);
    },
  });
  await until(() => room?.isJoined, "subscribed");
  // The reply to a second command would follow.
  await room.presenceStats();
  await api("publish", { channel: ROOM, data: { n: 1 } });
  await until(() => got.length === 1, `messages: ${got}`);
  cut();
  for (let n = 2; n < 5; n += 1) await api("publish", { channel: ROOM, data: { n } });
  await until(() => got.at(-1) === 4, `messages: ${got}`);
  assert(got.join() === "1,2,3,4" && lost === 0 && ends.length === 0, `messages: ${got}; lost: ${lost}; ended: ${ends}`);
  kim.close();
  console.log("callback");
}

async function closed() {
  const states = [];
  const answer = later();
  const ivan = open({ getToken: () => answer, state: (state) => states.push(state) });
  ivan.close();
  answer.reject(new Error("no token"));
  await new Promise((resolve) => setTimeout(resolve));
  assert(states.join() === "connecting,closed" && ivan.state === "closed", `states: ${states}`);
  // As soon as it is connected.
  const ends = [];
  const lena = open({ token: token({ sub: "lena" }), state: (state) => state === "connected" && lena.close() });
  lena.subscribe(ROOM, () => {}, { ended: (...why) => ends.push(why.join()) });
  await until(() => lena.state === "closed", "closed by the callback");
  await new Promise((resolve) => setTimeout(resolve));
  assert(ends.length === 0, `ended: ${ends}`);
  console.log("closed");
}

async function callbacks() {
  const got = [];
  const states = [];
  const faulty = (text) => { throw new Error(text); };
  const judy = open({ token: token({ sub: "judy" }), state: (state) => states.push(state) && faulty("state") });
  const room = judy.subscribe(ROOM, (data) => got.push(data.n) && faulty("message"));
  await room.joinedOnce;
  await room.publish({ n: 1 });
  cut();
  for (let n = 2; n < 5; n += 1) await api("publish", { channel: ROOM, data: { n } });
  await until(() => got.length === 4, `messages: ${got}`);
  assert(got.join() === "1,2,3,4", `messages: ${got}`);
  await until(() => reported.length === got.length + states.length, `reported: ${reported}`);
  judy.close();
  console.log("callbacks");
}

const limit = setTimeout(() => {
  console.log("timeout");
  process.exit(1);
}, LIMIT_MS);
try {
  await talk();
  await recover();
  await rights();
  await renewal();
  await again();
  await subscribedByApplication();
  await subscribedWhenConnected();
  await closed();
  await callbacks();
} catch (error) {
  console.log(error instanceof Error ? error.stack : JSON.stringify(error));
}
clearTimeout(limit);
process.exit(0);
