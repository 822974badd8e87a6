/** An error of the hub. `code` 0: the connection was lost. */
export class PushError extends Error {
  code: number;
  temporary: boolean;
}

export type State = "connecting" | "connected" | "closed";

export interface Visitor {
  client: string;
  user: string;
  conn_info?: unknown;
}

export interface Publication {
  data: unknown;
  offset?: number;
  info?: Visitor;
  tags?: Record<string, string>;
}

export interface Options {
  /** The token of the connection. */
  token?: string;
  /** Returns a token of the connection. Called if there is no `token`, when the token expires, and every 24.8 days before. */
  getToken?: () => Promise<string> | string;
  /** What is tried, in this order, until one works. */
  transports?: ("websocket" | "sse")[];
  /** Limits of the wait before a new connection, in milliseconds. */
  minDelay?: number;
  maxDelay?: number;
  /** The state has changed; why, if a connection has ended. */
  state?: (state: State, code: number, reason: string) => void;
}

export interface SubscribeOptions {
  /** Returns a token for the channel. */
  getToken?: (channel: string) => Promise<string> | string;
  /**
   * Messages were lost while the client was away, or may have been, because the application had subscribed the client: load
   * the state in another way.
   */
  lost?: () => void;
  /** Another client has subscribed or left; the namespace must have `join-leave`. */
  join?: (visitor: Visitor) => void;
  leave?: (visitor: Visitor) => void;
  /** The subscription was refused, or the application has ended it. */
  ended?: (code: number, reason: string) => void;
}

export interface HistoryOptions {
  limit?: number;
  since?: { epoch: string; offset: number };
  reverse?: boolean;
}

export interface History {
  publications: Publication[];
  epoch: string;
  offset: number;
}

export interface Subscription {
  readonly channel: string;
  readonly isJoined: boolean;
  /** Resolves when the subscription exists; rejects if it is refused. */
  readonly joinedOnce: Promise<Subscription>;
  publish(data: unknown): Promise<void>;
  history(options?: HistoryOptions): Promise<History>;
  presence(): Promise<Visitor[]>;
  presenceStats(): Promise<{ clients: number; users: number }>;
  unsubscribe(): void;
}

export interface Client {
  readonly state: State;
  /** The name of the connection, as presence lists it. */
  readonly id?: string;
  subscribe(
    channel: string,
    onMessage: (data: any, publication: Publication) => void,
    options?: SubscribeOptions,
  ): Subscription;
  publish(channel: string, data: unknown): Promise<void>;
  history(channel: string, options?: HistoryOptions): Promise<History>;
  presence(channel: string): Promise<Visitor[]>;
  presenceStats(channel: string): Promise<{ clients: number; users: number }>;
  /** Ends the connection for good. */
  close(): void;
}

/** Connects to the hub below `url`, which may be relative to the page. */
export function connect(url: string, options?: Options): Client;
