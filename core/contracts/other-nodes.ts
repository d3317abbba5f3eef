import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import type { Account } from './accounts.js';
import { service } from './service.js';

/** The client of a request, as the node says that it has authenticated. */
export interface ForwardedClient {
  readonly account: Account | null;
  readonly address: string;
  /** Signed in with a session, which it can end. */
  readonly session: boolean;
}

/** A request that another node has to answer. */
export interface ForwardedRequest {
  readonly method: string;
  /** Path and query, not decoded. */
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly client: ForwardedClient;
  /** Undefined without a body. */
  readonly body: Readable | string | undefined;
}

/** The nodes of a cluster, and the way to ask them. A plugin provides it; without one a server is alone. */
export interface OtherNodes {
  /** Name of this server among them. */
  readonly node: string;
  /** Those that can be asked, this one included; empty when none can. */
  names(): readonly string[];
  /**
   * Resolves with the head of the answer; its body is still to be read.
   *
   * @throws Problem `not-found` for a node that is not known, `unavailable` when it does not answer
   */
  ask(node: string, request: ForwardedRequest, signal: AbortSignal): Promise<IncomingMessage>;
}
export const otherNodes = service<OtherNodes>('postern.other-nodes');

/** The node that has sent a request, and its client. */
export interface Forwarder extends ForwardedClient {
  readonly node: string;
}

/** The HTTP side of this server, for requests that other nodes send. */
export interface ForwardedRequests {
  /** @param forwarder its name has been checked */
  answer(request: IncomingMessage, response: ServerResponse, forwarder: Forwarder): void;
}
export const forwardedRequests = service<ForwardedRequests>('postern.forwarded-requests');
