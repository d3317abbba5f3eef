import type { ClientRequest, IncomingMessage } from 'node:http';
import { Agent, request as newRequest } from 'node:https';
import { isIP } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { z } from 'zod';
import type { ForwardedRequest, Forwarder, OtherNodes } from '../../../core/contracts/other-nodes.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { NodeDirectory } from './node-directory.js';
import type { PeerTls } from './peer-tls.js';

/** Before the path of a request that a node sends for a client. */
export const httpPrefix = '/http';

/** Header with the client, in JSON and base64url. */
const clientHeader = 'postern-client';

const SentClient = z.object({
  node: z.string().min(1).max(63),
  account: z.object({ username: z.string().min(1).max(200), role: z.enum(['read', 'operate', 'admin']) }).nullable(),
  address: z.string().regex(/^[\da-fA-F:.]{0,45}(?:%[\w.-]{1,32})?$/),
  session: z.boolean(),
});

/** Requests at one node at a time. */
const maxAtNode = 32;
/** TCP and TLS together. Milliseconds. */
const connectMs = 5000;
/** Without a byte in either direction. Milliseconds. */
const silentMs = 120_000;

interface RequestsInput {
  readonly node: string;
  readonly nodes: Pick<NodeDirectory, 'addressOf' | 'living'>;
  /** Undefined when this node has no way to others. */
  readonly tls: PeerTls | undefined;
  /** @param status class of the answer, or `away` */
  readonly count: (node: string, status: string) => void;
  readonly silentMs?: number;
}

/** HTTP requests to other nodes, for clients of this one. */
export class PeerRequests implements OtherNodes {
  readonly #input: RequestsInput;
  readonly #agent: Agent;
  readonly #running = new Map<string, number>();
  /** Answers that end only when their client goes. */
  readonly #streams = new Set<IncomingMessage>();

  constructor(input: RequestsInput) {
    this.#input = input;
    this.#agent = new Agent({ keepAlive: true, maxFreeSockets: 8, minVersion: 'TLSv1.3', ...input.tls });
  }

  get node(): string {
    return this.#input.node;
  }

  names(): readonly string[] {
    const { node, nodes, tls } = this.#input;
    if (tls === undefined) return [];
    const others = nodes.living.filter(({ mailboxes }) => mailboxes?.address !== undefined).map((one) => one.node);
    return [...new Set([node, ...others])].sort();
  }

  async ask(node: string, request: ForwardedRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const address = await this.#addressOf(node);
    const running = this.#running.get(node) ?? 0;
    if (running >= maxAtNode) throw unavailable(`Too many requests wait for the node ${node}.`);
    this.#running.set(node, running + 1);
    const done = (): void => void this.#running.set(node, (this.#running.get(node) ?? 1) - 1);
    try {
      const answer = await this.#send(node, address, request, signal);
      answer.once('close', done);
      this.#input.count(node, `${Math.floor((answer.statusCode ?? 0) / 100)}xx`);
      if (answer.headers['content-type']?.startsWith('text/event-stream') === true) {
        this.#streams.add(answer);
        answer.once('close', () => this.#streams.delete(answer));
      }
      return answer;
    } catch (error) {
      done();
      this.#input.count(node, 'away');
      throw error;
    }
  }

  /** Ends streams, which would hold up the stop of this node. */
  endStreams(): void {
    for (const answer of this.#streams) answer.destroy();
  }

  close(): void {
    this.endStreams();
    this.#agent.destroy();
  }

  async #addressOf(node: string): Promise<string> {
    const { nodes, tls } = this.#input;
    const address = await nodes.addressOf(node);
    const isLiving = nodes.living.some((one) => one.node === node);
    if (address === undefined && !isLiving) throw problem('not-found', `No node calls itself ${node}.`);
    if (address !== undefined && tls !== undefined) return address;
    throw problem('conflict', `plugins.cluster.peers is not set at ${tls === undefined ? this.node : node}.`);
  }

  async #send(node: string, address: string, request: ForwardedRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const { method, target, headers, client, body } = request;
    const { hostname, port } = new URL(`https://${address}`);
    const sent: z.input<typeof SentClient> = { node: this.node, ...client };
    const asked = newRequest({
      host: hostname.replace(/^\[|\]$/g, ''),
      port,
      path: `${httpPrefix}${target}`,
      method,
      agent: this.#agent,
      headers: { ...headers, [clientHeader]: Buffer.from(JSON.stringify(sent)).toString('base64url') },
      timeout: this.#input.silentMs ?? silentMs,
      signal,
    });
    try {
      const answer = await answerOf(asked, body);
      // Every answer of its pages has the id of the request.
      if (answer.headers['x-request-id'] === headers['x-request-id']) return answer;
      answer.resume();
      throw unavailable(
        answer.statusCode === 403
          ? `The node ${node} does not accept requests of ${this.node}. Its log says why.`
          : `The node ${node} has this, and is not ready now. Try again in a while.`,
      );
    } catch (cause) {
      if (isProblem(cause)) throw cause;
      const { reusedSocket } = asked;
      const isStale = reusedSocket && !signal.aborted && body === undefined && (method === 'GET' || method === 'HEAD');
      if (isStale) return this.#send(node, address, request, signal);
      const isConnected = (asked.socket as TLSSocket | null)?.authorized === true;
      const isInDoubt = method !== 'GET' && method !== 'HEAD' && isConnected;
      throw unavailable(
        isInDoubt
          ? `The node ${node} has not answered, and may or may not have done this. Look before you repeat it.`
          : `The node ${node} has this, and does not answer now. Try again in a while.`,
        cause,
      );
    }
  }
}

const unavailable = (detail: string, cause?: unknown) =>
  problem('unavailable', { detail, headers: { 'Retry-After': '5' }, cause });

/** Sends the body, and resolves with the head of the answer, which may come before all is sent. */
function answerOf(asked: ClientRequest, body: ForwardedRequest['body']): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const slow = setTimeout(() => asked.destroy(new Error('it takes no connection')), connectMs);
    asked.once('socket', (socket) => {
      if (asked.reusedSocket) clearTimeout(slow);
      else socket.once('secureConnect', () => clearTimeout(slow));
    });
    asked.once('timeout', () => asked.destroy(new Error('it is silent')));
    asked.once('close', () => clearTimeout(slow));
    asked.on('error', reject);
    asked.once('response', (answer) => {
      if (typeof body === 'object') body.unpipe(asked);
      // What was not sent is of no use any more.
      answer.once('end', () => {
        if (!asked.writableFinished) asked.destroy();
      });
      resolve(answer);
    });
    if (typeof body !== 'object') {
      asked.end(body);
      return;
    }
    // Without its end the body is no body for the other node.
    body.once('close', () => {
      if (!body.readableEnded) asked.destroy(problem('bad-request', 'The body was cut off.'));
    });
    // The other node may refuse it by its length.
    asked.flushHeaders();
    body.pipe(asked);
  });
}

/** The node that has sent the request, and its client; undefined without the certificate of the node. */
export async function readForwarder(
  asked: IncomingMessage,
  { node, nodes }: Pick<RequestsInput, 'node' | 'nodes'>,
): Promise<Forwarder | undefined> {
  const field = asked.headers[clientHeader];
  const { data } = SentClient.safeParse(jsonOf(typeof field === 'string' ? field : ''));
  if (data === undefined || data.node === node) return undefined;
  const address = await nodes.addressOf(data.node);
  const certificate = (asked.socket as TLSSocket).getPeerX509Certificate();
  if (address === undefined || certificate === undefined) return undefined;
  const host = new URL(`https://${address}`).hostname.replace(/^\[|\]$/g, '');
  const isItsOwn = isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host);
  return isItsOwn === undefined ? undefined : data;
}

function jsonOf(field: string): unknown {
  try {
    return JSON.parse(Buffer.from(field, 'base64url').toString());
  } catch {
    return undefined;
  }
}
