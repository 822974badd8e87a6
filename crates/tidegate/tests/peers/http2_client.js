// Tests the server at the URL given as the argument with Node's HTTP/2 client; prints a line for each test that passes.
const assert = require("node:assert");
const crypto = require("node:crypto");
const http2 = require("node:http2");

const session = http2.connect(process.argv[2], { rejectUnauthorized: false });
session.on("error", (error) => { throw error; });
setTimeout(() => { throw new Error("timed out"); }, 240000).unref();

const RESPONDED = Buffer.from("responded");
const HELLO = Buffer.from("hello from the origin\n");

function open(method, path, body) {
  const stream = session.request({ ":method": method, ":path": path }, { endStream: body === undefined });
  if (body !== undefined) stream.end(body);
  return stream;
}

// The rest of a response, which must have ended in order.
function rest(stream) {
  return new Promise((resolve, reject) => {
    const pieces = [];
    let hasEnded = false;
    stream.on("data", (data) => pieces.push(data));
    stream.on("end", () => { hasEnded = true; });
    stream.on("error", reject);
    stream.on("close", () => {
      const isWhole = hasEnded && stream.rstCode === http2.constants.NGHTTP2_NO_ERROR;
      isWhole ? resolve(Buffer.concat(pieces)) : reject(new Error(`reset with ${stream.rstCode}`));
    });
  });
}

async function fetch(method, path, body) {
  const stream = open(method, path, body);
  const status = new Promise((resolve) => stream.on("response", (fields) => resolve(fields[":status"])));
  const data = await rest(stream);
  assert.strictEqual(await status, 200, path);
  return data;
}

async function get() {
  assert.deepStrictEqual(await fetch("GET", "/respond"), RESPONDED);
  assert.deepStrictEqual(await fetch("GET", "/hello"), HELLO);
  assert.strictEqual((await fetch("GET", "/synthetic?s=100000")).length, 100000);
}

async function post() {
  const sent = crypto.randomBytes(1 << 20);
  assert.deepStrictEqual(await fetch("POST", "/respond", sent), RESPONDED);
  assert.ok((await fetch("POST", "/echo", sent)).equals(sent));
  assert.strictEqual((await fetch("POST", "/synthetic?s=1000", sent)).length, 1000);
}

async function hundred() {
  const requests = [];
  for (let at = 0; at < 100; at++) {
    const sent = crypto.randomBytes(10000 + at);
    requests.push(fetch("GET", "/respond").then((data) => assert.deepStrictEqual(data, RESPONDED)));
    requests.push(fetch("GET", "/synthetic?s=50000").then((data) => assert.strictEqual(data.length, 50000)));
    requests.push(fetch("POST", "/echo", sent).then((data) => assert.ok(data.equals(sent))));
  }
  await Promise.all(requests);
}

// A response that is not read holds up no other stream of its connection.
async function slow() {
  for (const [path, size] of [["/synthetic?s=20m", 20 << 20], ["/big", 20 << 20]]) {
    const stream = open("GET", path);
    await new Promise((resolve) => stream.once("response", resolve));
    for (let count = 0; count < 20; count++) {
      assert.deepStrictEqual(await fetch("GET", "/respond"), RESPONDED);
      assert.deepStrictEqual(await fetch("GET", "/hello"), HELLO);
    }
    assert.strictEqual((await rest(stream)).length, size);
  }
}

async function cancel() {
  const aborted = [];
  for (let at = 0; at < 20; at++) {
    const stream = open("GET", ["/synthetic?s=20m", "/big"][at % 2]);
    stream.once("data", () => stream.close(http2.constants.NGHTTP2_CANCEL));
    aborted.push(new Promise((resolve) => stream.on("close", () => resolve(stream.rstCode))));
  }
  const beside = Array.from({ length: 50 }, () => fetch("GET", "/synthetic?s=200000"));
  for (const data of await Promise.all(beside)) assert.strictEqual(data.length, 200000);
  for (const code of await Promise.all(aborted)) assert.strictEqual(code, http2.constants.NGHTTP2_CANCEL);
}

async function cancelUpload() {
  for (const path of ["/echo", "/synthetic?s=10&B=1m", "/echo"]) {
    const stream = session.request({ ":method": "POST", ":path": path });
    stream.on("error", () => {});
    await new Promise((resolve) => stream.write(Buffer.alloc(100000), resolve));
    stream.close(http2.constants.NGHTTP2_CANCEL);
    assert.deepStrictEqual(await fetch("GET", "/hello"), HELLO);
  }
}

async function main() {
  for (const test of [get, post, hundred, slow, cancel, cancelUpload]) {
    await test();
    console.log(test.name);
  }
  session.close();
}

main();
