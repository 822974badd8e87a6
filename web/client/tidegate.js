// A client of Tidegate's push hubs: subscribe, publish, history, presence; reconnects with recovery, and falls back from
// WebSocket to a stream of events. It speaks the JSON form of Centrifugo's client protocol, version 2.
//
//   import { connect } from "./tidegate.js";
//   const client = connect("https://example.com/push", { token });
//   const room = client.subscribe("chat:lobby", (data) => console.log(data), { lost: () => location.reload() });
//   await room.publish({ text: "hello" });

const REPLY_LIMIT_MS = 10000;
const PING_SLACK_MS = 10000;
/** A longer timer fires at once. */
const TIMER_MAX_MS = 2 ** 31 - 1;
/** The client is already subscribed to the channel. */
const ALREADY_SUBSCRIBED = 105;
/** From this code on, and below the next thousand, a disconnect is final. */
const isFinal = (code) => (code >= 3500 && code < 4000) || (code >= 4500 && code < 5000);
const isTemporary = (error) => error.temporary || error.code === 109;

/** Runs a callback of the page. An error of it is reported as any other one of the page, and ends nothing here. */
function report(callback) {
  try {
    callback();
  } catch (error) {
    queueMicrotask(() => { throw error; });
  }
}

/** An error of the hub, with its code. */
export class PushError extends Error {
  constructor({ code, message, temporary = false }) {
    super(message);
    Object.assign(this, { name: "PushError", code, temporary });
  }
}

/** Opens a WebSocket. Calls `message` with each object, and `close` once. */
function openSocket(base, first, { message, close }) {
  const socket = new WebSocket(`${base.replace(/^http/, "ws")}/connection/websocket`);
  const finish = ({ code = 0, reason = "" }) => close(code, reason);
  socket.onopen = () => socket.send(first);
  socket.onmessage = ({ data }) => data.split("\n").forEach((line) => message(JSON.parse(line)));
  socket.onclose = finish;
  return { send: (text) => socket.readyState === 1 && socket.send(text), end: () => socket.close() };
}

/** Opens a stream of events; commands are requests of their own. */
function openEvents(base, first, { message, close }) {
  const source = new EventSource(`${base}/connection/sse?cf_connect=${encodeURIComponent(first)}`);
  let session;
  let queue = Promise.resolve();
  const end = (code = 0, reason = "") => {
    source.close();
    close(code, reason);
  };
  source.onmessage = ({ data }) => {
    const object = JSON.parse(data);
    if (object.connect) session = { session: object.connect.session, node: object.connect.node };
    if (object.push?.disconnect) return end(object.push.disconnect.code, object.push.disconnect.reason);
    message(object);
  };
  source.onerror = () => end();
  // One request after the other, so that commands keep their order.
  const send = (data) => {
    queue = queue
      .then(() => fetch(`${base}/emulation`, { method: "POST", body: JSON.stringify({ ...session, data }) }))
      .then((response) => response.ok || end(), () => end());
  };
  return { send, end: () => source.close() };
}

const TRANSPORTS = { websocket: openSocket, sse: openEvents };

class Client {
  #base;
  #options;
  #state = "disconnected";
  #transport = null;
  /** Which of `transports` is tried; the first one that has worked is kept. */
  #at = 0;
  #hasWorked = false;
  /** Commands that wait for replies, by id. */
  #waiting = new Map();
  #id = 0;
  #attempts = 0;
  #timers = {};
  #rooms = new Map();
  /** The replies to `subscribe` that are awaited, by channel: one for each channel. */
  #joining = new Map();
  #token;

  constructor(url, options) {
    this.#base = new URL(url, globalThis.location?.href).href.replace(/\/$/, "");
    this.#options = { transports: ["websocket", "sse"], minDelay: 300, maxDelay: 20000, ...options };
    this.#token = this.#options.token;
    this.#open();
  }

  get state() {
    return this.#state;
  }

  subscribe(channel, onMessage, options = {}) {
    if (this.#rooms.has(channel)) throw new Error(`already subscribed to ${channel}`);
    const room = new Subscription(this, channel, onMessage, options);
    this.#rooms.set(channel, room);
    if (this.#state === "connected") this.#join(room);
    return room;
  }

  publish(channel, data) {
    return this.command("publish", { channel, data }).then(() => {});
  }

  async history(channel, { limit = 100, since, reverse } = {}) {
    const { publications = [], epoch, offset } = await this.command("history", { channel, limit, since, reverse });
    return { publications, epoch, offset };
  }

  async presence(channel) {
    return Object.values((await this.command("presence", { channel })).presence);
  }

  async presenceStats(channel) {
    const { num_clients: clients, num_users: users } = await this.command("presence_stats", { channel });
    return { clients, users };
  }

  close() {
    this.#stop("closed", 0, "closed");
  }

  /** Sends a command; resolves with its result. */
  command(name, request) {
    if (this.#state !== "connected") return Promise.reject(new PushError({ code: 0, message: "not connected", temporary: true }));
    return this.#send(name, request);
  }

  leave(channel) {
    const room = this.#rooms.get(channel);
    this.#rooms.delete(channel);
    if (room?.isJoined) this.command("unsubscribe", { channel }).catch(() => {});
  }

  /** `then` is called with the result before anything that came after it is handled, which a promise does not do. */
  #encode(name, request, then) {
    const id = ++this.#id;
    const reply = new Promise((resolve, reject) => {
      const limit = setTimeout(() => this.#lose(0, `no reply to ${name}`), REPLY_LIMIT_MS);
      this.#waiting.set(id, { name, then, resolve, reject, limit });
    });
    return [JSON.stringify({ id, [name]: request }), reply];
  }

  #send(name, request, then) {
    const [text, reply] = this.#encode(name, request, then);
    this.#transport.send(text);
    return reply;
  }

  async #open() {
    this.#change("connecting");
    try {
      if (!this.#token && this.#options.getToken) this.#token = await this.#options.getToken();
    } catch {
      if (this.#state === "connecting") this.#lose(0, "no token");
      return;
    }
    if (this.#state !== "connecting") return;
    const [first, reply] = this.#encode("connect", this.#token ? { token: this.#token } : {});
    const open = TRANSPORTS[this.#options.transports[this.#at]];
    // Events of a transport that was given up do not count.
    const transport = {};
    const isCurrent = () => this.#transport === transport;
    this.#transport = transport;
    Object.assign(transport, open(this.#base, first, {
      message: (object) => isCurrent() && this.#receive(object),
      close: (code, reason) => isCurrent() && this.#lose(code, reason),
    }));
    try {
      this.#begin(await reply);
    } catch (error) {
      if (!isCurrent()) return;
      if (error.code === 109) this.#token = undefined;
      const canRenew = error.code !== 109 || this.#options.getToken;
      if (isTemporary(error) && canRenew) this.#lose(error.code, error.message);
      else this.#stop("closed", error.code, error.message);
    }
  }

  #begin({ client, ping = 0, pong, ttl }) {
    this.#hasWorked = true;
    this.#attempts = 0;
    this.id = client;
    this.#timers.silence = { span: ping * 1000 + PING_SLACK_MS, isOn: ping > 0, answers: pong };
    this.#listen();
    this.#renewAfter(ttl);
    // The callback may subscribe, which joins, or close the client.
    const rooms = [...this.#rooms.values()];
    this.#change("connected");
    if (this.#state === "connected") rooms.forEach((room) => this.#join(room));
  }

  /** The hub sends pings: after a long silence the connection is dead. */
  #listen() {
    const silence = this.#timers.silence;
    if (!silence?.isOn) return;
    clearTimeout(silence.timer);
    silence.timer = setTimeout(() => this.#lose(0, "no ping"), silence.span);
  }

  /** Renews a token that lasts `ttl` seconds; one that lasts longer than a timer is renewed earlier. */
  #renewAfter(ttl) {
    clearTimeout(this.#timers.renewal);
    if (ttl) this.#timers.renewal = setTimeout(() => this.#renew(), Math.min(ttl * 1000, TIMER_MAX_MS));
  }

  async #renew() {
    if (!this.#options.getToken) return;
    try {
      this.#token = await this.#options.getToken();
      const { ttl } = await this.command("refresh", { token: this.#token });
      this.#renewAfter(ttl);
    } catch {
      // The hub ends the connection when the old token has expired, and the next one gets a new token.
      this.#token = undefined;
    }
  }

  async #join(room) {
    const { channel } = room;
    const transport = this.#transport;
    // After a new connection, another call joins the room.
    const isCurrent = () => this.#transport === transport && this.#rooms.get(channel) === room;
    let request;
    try {
      request = await room.request();
      // The hub may still have to answer for a room of this channel that was left.
      await this.#joining.get(channel)?.catch(() => {});
      if (isCurrent()) await this.#subscribe(room, request);
    } catch (error) {
      if (!isCurrent()) return;
      if (isTemporary(error)) {
        setTimeout(() => isCurrent() && this.#join(room), this.#delay(1));
      } else if (error.code === ALREADY_SUBSCRIBED) {
        room.assigned(request.recover);
      } else {
        this.#rooms.delete(channel);
        room.ended(error.code, error.message);
      }
    }
  }

  #subscribe(room, request) {
    const { channel } = room;
    const reply = this.#send("subscribe", request, (result) => {
      if (this.#rooms.get(channel) === room) room.joined(result);
      // It was left in the meantime.
      else this.command("unsubscribe", { channel }).catch(() => {});
    });
    this.#joining.set(channel, reply);
    return reply.finally(() => this.#joining.delete(channel));
  }

  #receive(object) {
    this.#listen();
    if (object.id) {
      const waiting = this.#waiting.get(object.id);
      this.#waiting.delete(object.id);
      if (!waiting) return;
      clearTimeout(waiting.limit);
      if (object.error) return waiting.reject(new PushError(object.error));
      const result = object[waiting.name] ?? {};
      waiting.then?.(result);
      waiting.resolve(result);
    } else if (object.push) {
      this.#push(object.push);
    } else if (this.#timers.silence?.answers) {
      this.#transport.send("{}");
    }
  }

  #push({ channel, pub, join, leave, unsubscribe }) {
    const room = this.#rooms.get(channel);
    if (!room) return;
    if (pub) room.received(pub);
    else if (join) report(() => room.options.join?.(join.info));
    else if (leave) report(() => room.options.leave?.(leave.info));
    else if (unsubscribe?.code >= 2500) {
      room.left();
      this.#join(room);
    } else if (unsubscribe) {
      this.#rooms.delete(channel);
      room.ended(unsubscribe.code, unsubscribe.reason);
    }
  }

  /** Half to all of a span that doubles with each attempt, so that many clients do not come back together. */
  #delay(attempt) {
    const { minDelay, maxDelay } = this.#options;
    return Math.min(maxDelay, minDelay * 2 ** attempt) * (0.5 + Math.random() / 2);
  }

  #lose(code, reason) {
    if (isFinal(code)) return this.#stop("closed", code, reason);
    this.#stop("connecting", code, reason);
    if (!this.#hasWorked) this.#at = (this.#at + 1) % this.#options.transports.length;
    this.#timers.retry = setTimeout(() => this.#open(), this.#delay(this.#attempts++));
  }

  #stop(state, code, reason) {
    const transport = this.#transport;
    this.#transport = null;
    clearTimeout(this.#timers.retry);
    clearTimeout(this.#timers.renewal);
    clearTimeout(this.#timers.silence?.timer);
    this.#rooms.forEach((room) => room.left());
    transport?.end?.();
    this.#change(state, code, reason);
    for (const { reject, limit } of this.#waiting.values()) {
      clearTimeout(limit);
      reject(new PushError({ code, message: reason || "the connection was lost", temporary: true }));
    }
    this.#waiting.clear();
  }

  #change(state, code = 0, reason = "") {
    if (state === this.#state) return;
    this.#state = state;
    report(() => this.#options.state?.(state, code, reason));
  }
}

class Subscription {
  /** After the last message that was received; `null`: messages have no positions, `undefined`: it is not known. */
  #since = null;
  #ready;

  constructor(client, channel, onMessage, options) {
    Object.assign(this, { client, channel, onMessage, options, isJoined: false });
    this.joinedOnce = new Promise((resolve, reject) => { this.#ready = { resolve, reject }; });
    this.joinedOnce.catch(() => {});
  }

  async request() {
    const token = await this.options.getToken?.(this.channel);
    const since = this.#since && { recover: true, ...this.#since };
    return { channel: this.channel, token, ...since };
  }

  joined({ epoch, offset = 0, publications = [], recovered, was_recovering: wasRecovering }) {
    const isLost = this.#since === undefined || (wasRecovering && !recovered);
    this.isJoined = true;
    this.#since = epoch ? { epoch, offset } : null;
    if (isLost) report(() => this.options.lost?.());
    publications.forEach((publication) => this.received(publication));
    this.#ready.resolve(this);
  }

  /** The application has subscribed the client: what came before is not known, nor is the position for the next time. */
  assigned(wasRecovering) {
    if (this.isJoined) return;
    this.joined({ was_recovering: wasRecovering });
    this.#since = undefined;
  }

  received(publication) {
    if (this.#since && publication.offset) this.#since.offset = publication.offset;
    report(() => this.onMessage(publication.data, publication));
  }

  left() {
    this.isJoined = false;
  }

  ended(code, reason) {
    this.isJoined = false;
    this.#ready.reject(new PushError({ code, message: reason }));
    report(() => this.options.ended?.(code, reason));
  }

  publish(data) {
    return this.client.publish(this.channel, data);
  }

  history(options) {
    return this.client.history(this.channel, options);
  }

  presence() {
    return this.client.presence(this.channel);
  }

  presenceStats() {
    return this.client.presenceStats(this.channel);
  }

  unsubscribe() {
    this.client.leave(this.channel);
  }
}

/** Connects to the hub below `url`. */
export function connect(url, options = {}) {
  return new Client(url, options);
}
