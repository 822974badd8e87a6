// Tests an echo at the URL given as the argument with the package ws; prints a line for each test that passes.
const assert = require("node:assert");
const crypto = require("node:crypto");
const { once } = require("node:events");
const WebSocket = require("ws");

const url = process.argv[2];
setTimeout(() => { throw new Error("timed out"); }, 240000).unref();

async function connect(options) {
  const all = { rejectUnauthorized: false, perMessageDeflate: { threshold: 0 }, maxPayload: 16 << 20, ...options };
  const socket = new WebSocket(url, ["other", "chat"], all);
  await once(socket, "open");
  assert.strictEqual(socket.protocol, "chat");
  return socket;
}

async function received(socket, message) {
  const [data, isBinary] = await once(socket, "message");
  assert.strictEqual(isBinary, typeof message !== "string");
  assert.ok(isBinary ? data.equals(message) : data.toString() === message, `${data.length} bytes`);
}

async function echoed(socket, message) {
  socket.send(message);
  await received(socket, message);
}

async function closed(socket, code, reason) {
  socket.close(code, reason);
  assert.strictEqual((await once(socket, "close"))[0], code);
}

async function messages() {
  // The server may decline compression; with it, each set of parameters.
  const parameters = [
    false, true, { serverNoContextTakeover: true, clientNoContextTakeover: true },
    { serverMaxWindowBits: 9, clientMaxWindowBits: 9 }, { serverMaxWindowBits: 15, clientMaxWindowBits: 10 },
  ];
  const noise = crypto.randomBytes(3 << 20);
  let text = "";
  while (text.length < 1 << 20) text += `grüße ${crypto.randomInt(1 << 30)}, 🙂`;
  for (const perMessageDeflate of parameters) {
    const socket = await connect({ perMessageDeflate });
    for (const size of [0, 1, 125, 126, 127, 65535, 65536, 1 << 20, 3 << 20]) {
      await echoed(socket, noise.subarray(0, size));
      if (size <= 1 << 20) await echoed(socket, Buffer.from(text.slice(0, size / 2), "utf8").toString());
    }
    for (let at = 0; at < 500; at++) socket.send(`message ${at}`);
    const all = new Promise((resolve) => {
      let count = 0;
      socket.on("message", (data) => {
        assert.strictEqual(data.toString(), `message ${count}`);
        if (++count === 500) resolve();
      });
    });
    await all;
    await closed(socket, 1000, "");
  }
}

async function fragments() {
  const socket = await connect();
  const pieces = Array.from({ length: 50 }, (_, at) => crypto.randomBytes(at * 100));
  pieces.forEach((piece, at) => {
    socket.send(piece, { fin: at === pieces.length - 1, binary: true });
    if (at % 10 === 0) socket.ping(String(at));
  });
  await received(socket, Buffer.concat(pieces));
  await closed(socket, 1000, "");
}

async function pings() {
  const socket = await connect();
  for (const data of ["", "one", "x".repeat(125)]) {
    socket.ping(data);
    assert.strictEqual(String((await once(socket, "pong"))[0]), data);
  }
  await closed(socket, 1000, "");
}

async function closes() {
  for (const [code, reason] of [[1000, ""], [1001, "away"], [1011, ""], [3000, "über"], [4999, "x".repeat(123)]]) {
    await closed(await connect(), code, reason);
  }
}

async function clients() {
  const one = async (at) => {
    const socket = await connect();
    for (let count = 0; count < 20; count++) await echoed(socket, `${at} `.repeat(500));
    if (at % 2) await closed(socket, 1000, "");
    else socket.terminate();
  };
  await Promise.all(Array.from({ length: 50 }, (_, at) => one(at)));
}

async function refusals() {
  const socket = new WebSocket(url, { rejectUnauthorized: false, origin: "https://evil.example" });
  const [, response] = await once(socket, "unexpected-response");
  assert.strictEqual(response.statusCode, 403);
}

async function main() {
  for (const test of [messages, fragments, pings, closes, clients, refusals]) {
    await test();
    console.log(test.name);
  }
  process.exit(0);
}

main();
