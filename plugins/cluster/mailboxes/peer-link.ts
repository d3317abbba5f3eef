import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import type { RecipientOutcome } from '../../../core/pipeline/delivery-target.js';
import type { Log } from '../../../core/log/log.js';
import type { Recipient, Transaction } from '../../../core/pipeline/transaction.js';
import type { SpooledMessage } from '../../../core/spool/spool.js';
import type { PeerTls } from './peer-tls.js';

/** What a node learns of a message, in one line of JSON before the message itself. */
export const Envelope = z.strictObject({
  id: z.string().min(1).max(200),
  reversePath: z.string().nullable(),
  smtputf8: z.boolean(),
  /** No earlier try can have delivered it. */
  fresh: z.boolean(),
  recipients: z.array(z.strictObject({ address: z.string(), username: z.string() })).min(1),
});

/** They become replies and parts of reports. */
const text = z.string().transform((said) => said.replaceAll(/[^ -~]/g, '?').slice(0, 300));

export const Outcomes = z.array(
  z.discriminatedUnion('outcome', [
    z.object({ outcome: z.literal('delivered') }),
    z.object({
      outcome: z.literal('deferred'),
      code: z.int().min(400).max(499),
      status: z.string().regex(/^4\.\d{1,3}\.\d{1,3}$/),
      text,
      queue: z.literal(true).optional(),
    }),
    z.object({
      outcome: z.literal('refused'),
      code: z.int().min(500).max(599),
      status: z.string().regex(/^5\.\d{1,3}\.\d{1,3}$/),
      text,
    }),
  ]),
);

export const Refusal = z.object({ detail: z.string() });

interface LinkInput {
  readonly tls: PeerTls;
  readonly addressOf: (node: string) => Promise<string | undefined>;
  /** A node answers again. */
  readonly returned: () => void;
  readonly log: Log;
}

/** A node that did not answer is asked at this interval whether it is back; until then mail for it is queued. Milliseconds. */
const pauseMs = 2000;
/** Without a byte in either direction. Milliseconds. */
const silentMs = 20_000;
/** To write a whole mailbox to the disk. Milliseconds. */
const slowMs = 600_000;
const maxAnswerBytes = 2 ** 20;

/** Why a node has not done what it was asked for; a sentence without a dot. */
export class PeerFault extends Error {}

/** What this node asks of others, over mutual TLS. */
export class PeerLink {
  readonly #input: LinkInput;
  readonly #agent: Agent;
  /** Nodes that did not answer, with the timer of the next question. */
  readonly #silent = new Map<string, NodeJS.Timeout>();
  #isClosed = false;

  constructor(input: LinkInput) {
    this.#input = input;
    this.#agent = new Agent({
      keepAlive: true,
      maxSockets: 32,
      maxFreeSockets: 8,
      minVersion: 'TLSv1.3',
      ...input.tls,
    });
  }

  /** Hands over a message. Never rejects: what was not answered for is deferred, for the queue. */
  async deliver(
    node: string,
    transaction: Transaction,
    recipients: readonly Recipient[],
    message: SpooledMessage,
  ): Promise<readonly RecipientOutcome[]> {
    const { id, reversePath, smtputf8, repeatable, fresh } = transaction;
    const envelope: z.output<typeof Envelope> = {
      id,
      reversePath: reversePath?.address ?? null,
      smtputf8,
      fresh: repeatable !== true || fresh === true,
      recipients: recipients.map(({ address, hop }) => ({
        address: address.address,
        username: hop?.destination ?? '',
      })),
    };
    try {
      if (this.#silent.has(node)) throw new PeerFault('it did not answer just now');
      const body = (isAgain: boolean) =>
        lineThen(isAgain ? { ...envelope, fresh: false } : envelope, message.open(message.traceOffset));
      const outcomes = Outcomes.parse(await this.ask(node, '/deliver', body));
      if (outcomes.length !== recipients.length) throw new PeerFault('it did not answer for each recipient');
      return recipients.map((recipient, index) => ({ recipient, ...outcomes[index] }) as RecipientOutcome);
    } catch (error) {
      this.#input.log.warn({ transaction: id, node, err: error }, 'a message could not be handed to its node');
      return recipients.map((recipient) => ({
        recipient,
        outcome: 'deferred',
        code: 451,
        status: '4.4.1',
        text: 'The server of this mailbox does not answer now',
        queue: true,
      }));
    }
  }

  /**
   * Posts that body, and reads the answer as JSON.
   *
   * @param body called again when a connection that was kept had been closed
   * @throws PeerFault
   */
  async ask(
    node: string,
    path: string,
    body: (isAgain: boolean) => AsyncIterable<Buffer>,
    { slow = false } = {},
  ): Promise<unknown> {
    const address = await this.#input.addressOf(node);
    if (address === undefined) {
      this.#wait(node);
      throw new PeerFault('its address is not known');
    }
    const timeout = slow ? slowMs : silentMs;
    try {
      const url = new URL(path, `https://${address}`);
      const answer = await this.#post(url, body(false), timeout).catch((error: unknown) => {
        if (error instanceof StaleConnection) return this.#post(url, body(true), timeout);
        throw error;
      });
      const said = await readJson(answer);
      this.#heard(node);
      if (answer.statusCode === 200) return said;
      const { success, data } = Refusal.safeParse(said);
      throw new PeerFault(success ? data.detail : `it answers ${answer.statusCode}`);
    } catch (error) {
      if (error instanceof PeerFault) throw error;
      this.#wait(node);
      throw new PeerFault(`it does not answer (${(error as Error).message})`, { cause: error });
    }
  }

  close(): void {
    this.#isClosed = true;
    for (const timer of this.#silent.values()) clearTimeout(timer);
    this.#agent.destroy();
  }

  #heard(node: string): void {
    clearTimeout(this.#silent.get(node));
    if (this.#silent.delete(node)) this.#input.returned();
  }

  #wait(node: string): void {
    if (this.#isClosed) return;
    clearTimeout(this.#silent.get(node));
    const question = (): void => void this.ask(node, '/ready', () => Readable.from([])).catch(() => undefined);
    this.#silent.set(node, setTimeout(question, pauseMs).unref());
  }

  #post(url: URL, body: AsyncIterable<Buffer>, timeout: number): Promise<IncomingMessage> {
    const headers = { 'Content-Type': 'application/octet-stream' };
    const asked = request(url, { method: 'POST', agent: this.#agent, timeout, headers });
    asked.once('timeout', () => asked.destroy(new Error('it is silent')));
    return new Promise((resolve, reject) => {
      asked.once('response', resolve);
      asked.on('error', (error: Error & { readonly code?: string }) => {
        const isStale = asked.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
        reject(isStale ? new StaleConnection() : error);
      });
      // An answer may come before all is sent: then the rest is of no use.
      pipeline(Readable.from(body, { objectMode: false }), asked).catch((error: unknown) =>
        asked.destroy(new PeerFault((error as Error).message)),
      );
    });
  }
}

class StaleConnection extends Error {}

async function* lineThen(line: object, content: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  yield Buffer.from(`${JSON.stringify(line)}\n`);
  yield* content;
}

async function readJson(answer: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxAnswerBytes) throw new Error('its answer is too long');
    chunks.push(chunk);
  }
  return JSON.parse(Buffer.concat(chunks).toString());
}
