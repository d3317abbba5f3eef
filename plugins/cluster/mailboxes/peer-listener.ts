import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { z } from 'zod';
import type { LocalDelivery } from '../../../core/contracts/local-delivery.js';
import type { ForwardedRequests, Forwarder } from '../../../core/contracts/other-nodes.js';
import { targets } from '../../../core/contracts/targets.js';
import type { Log } from '../../../core/log/log.js';
import { parseAddress } from '../../../core/mime/address.js';
import { classOf, isProblem, problem, startError } from '../../../core/problem.js';
import type { PeerSettings } from '../options.js';
import { handedOver } from './divided-target.js';
import { FramedInput } from './framed-input.js';
import { Envelope, Outcomes } from './peer-link.js';
import { httpPrefix } from './peer-requests.js';
import type { PeerTls } from './peer-tls.js';

/** What a node does that has mailboxes. */
export interface MailReceiver {
  readonly local: Pick<LocalDelivery, 'deliver'>;
  readonly receive: (input: FramedInput) => Promise<void>;
}

interface ListenerInput {
  readonly settings: Pick<PeerSettings, 'host' | 'port'>;
  readonly tls: PeerTls;
  readonly http: ForwardedRequests;
  /** The node whose certificate the connection has shown, and its client. */
  readonly forwarderOf: (asked: IncomingMessage) => Promise<Forwarder | undefined>;
  readonly log: Log;
}

const maxEnvelope = 2 ** 20;
const maxHeaderSize = 64 * 1024;
/** So that mail finds connections, too. */
const maxHttpRequests = 128;
/** Longer than the other side keeps a connection. Milliseconds. */
const keepAliveMs = 120_000;
/** Without a byte of what is to be read. Milliseconds. */
const silentMs = 60_000;
const handshakeMs = 10_000;
const maxConnections = 256;
/** For answers that are being made when this node stops. Milliseconds. */
const closeMs = 5000;
/** TLS failures are logged at most once in that time. Milliseconds. */
const failureMs = 60_000;

/** Where the other nodes hand over mail and mailboxes, and HTTP requests of their clients. A client without a certificate of the cluster's authority gets no answer. */
export class PeerListener {
  readonly #input: ListenerInput;
  readonly #server: Server;
  /** Deliveries under way: the same one again has to wait for its outcome. */
  readonly #delivering = new Set<string>();
  #mail: MailReceiver | undefined;
  #httpRequests = 0;

  constructor(input: ListenerInput) {
    this.#input = input;
    const { tls } = input;
    this.#server = createServer(
      {
        ...tls,
        requestCert: true,
        rejectUnauthorized: true,
        minVersion: 'TLSv1.3',
        handshakeTimeout: handshakeMs,
        headersTimeout: silentMs,
        requestTimeout: 0,
        maxHeaderSize,
      },
      (asked, answer) => void this.#answer(asked, answer),
    );
    this.#server.keepAliveTimeout = keepAliveMs;
    this.#server.maxConnections = maxConnections;
    let loggedAt = -Infinity;
    this.#server.on('tlsClientError', (error: Error, socket) => {
      if (performance.now() - loggedAt < failureMs) return;
      loggedAt = performance.now();
      input.log.warn(
        { remote: socket.remoteAddress, err: error },
        'a connection without a certificate of the cluster was refused',
      );
    });
  }

  /** @param mail absent: this node takes neither mail nor mailboxes. @throws start error */
  async start(mail?: MailReceiver): Promise<void> {
    this.#mail = mail;
    const { host, port } = this.#input.settings;
    try {
      await once(this.#server.listen(port, host), 'listening');
    } catch (error) {
      throw startError(
        `The nodes of the cluster cannot be answered on ${host} port ${port} (${(error as Error).message}). See plugins.cluster.peers.`,
        error,
      );
    }
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeIdleConnections();
    const timer = setTimeout(() => this.#server.closeAllConnections(), closeMs);
    await closed;
    clearTimeout(timer);
  }

  async #answer(asked: IncomingMessage, answer: ServerResponse): Promise<void> {
    try {
      if (asked.url?.startsWith(`${httpPrefix}/`) === true) await this.#answerHttp(asked, answer);
      else send(answer, 200, await this.#answerMail(asked));
    } catch (error) {
      if (!isProblem(error)) this.#input.log.error({ err: error }, 'what another node asked for could not be done');
      const [status, detail] = isProblem(error) ? [classOf(error).http, error.message] : [500, 'Local error'];
      // What was not read is not read any more.
      answer.setHeader('Connection', 'close');
      send(answer, status, { detail });
    }
  }

  async #answerMail(asked: IncomingMessage): Promise<unknown> {
    if (asked.method !== 'POST') throw problem('not-found');
    if (asked.url === '/ready') return {};
    const mail = this.#mail;
    if (mail === undefined) throw problem('not-found');
    const input = new FramedInput(unlessSilent(asked));
    if (asked.url === '/deliver') return this.#deliver(mail, input);
    if (asked.url !== '/mailbox') throw problem('not-found');
    await mail.receive(input);
    return {};
  }

  /** @throws Problem before anything of the request is believed */
  async #answerHttp(asked: IncomingMessage, answer: ServerResponse): Promise<void> {
    const { http, forwarderOf, log } = this.#input;
    const forwarder = await forwarderOf(asked);
    if (forwarder === undefined) {
      log.warn(
        { remote: asked.socket.remoteAddress },
        'a request without the name and certificate of a node was refused',
      );
      throw problem('forbidden');
    }
    if (this.#httpRequests >= maxHttpRequests) throw problem('unavailable');
    this.#httpRequests += 1;
    answer.once('close', () => (this.#httpRequests -= 1));
    // A slow handler keeps its connection.
    answer.setTimeout(silentMs, () => {
      if (!asked.complete || asked.socket.writableLength > 0) asked.socket.destroy();
    });
    asked.url = asked.url?.slice(httpPrefix.length);
    http.answer(asked, answer, forwarder);
  }

  async #deliver({ local }: MailReceiver, input: FramedInput): Promise<z.output<typeof Outcomes>> {
    const { id, reversePath, recipients, ...rest } = Envelope.parse(JSON.parse(await input.line(maxEnvelope)));
    const keys = recipients.map(({ username }) => `${id} ${username}`);
    if (keys.some((key) => this.#delivering.has(key)))
      throw problem('unavailable', 'The message is being delivered already.');
    for (const key of keys) this.#delivering.add(key);
    try {
      const outcomes = await local.deliver({
        ...rest,
        id,
        reversePath: reversePath === null ? null : parseAddress(reversePath),
        recipients: recipients.map(({ address, username }) => ({
          address: parseAddress(address),
          hop: { target: targets.mailbox, destination: username, data: handedOver },
        })),
        content: () => input.rest(),
      });
      return Outcomes.parse(outcomes);
    } finally {
      for (const key of keys) this.#delivering.delete(key);
    }
  }
}

/** The body of a request; the request is over when its client says nothing while it is waited for. */
async function* unlessSilent(asked: IncomingMessage): AsyncGenerator<Buffer> {
  const chunks = asked[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  for (;;) {
    const timer = setTimeout(() => asked.destroy(new Error('the other node is silent')), silentMs);
    const next = await chunks.next().finally(() => clearTimeout(timer));
    if (next.done === true) return;
    yield next.value;
  }
}

function send(answer: ServerResponse, status: number, body: unknown): void {
  if (answer.headersSent) return;
  const text = Buffer.from(JSON.stringify(body));
  answer.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': text.length });
  answer.end(text);
}
