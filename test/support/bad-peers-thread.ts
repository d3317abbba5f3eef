/** The servers of `bad-peers.ts`, in a thread of their own, so that what they use is not time of the server under test. */
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { workerData } from 'node:worker_threads';
import type { BadPeersWork, PeerKind } from './bad-peers.js';

type Step = 'greeting' | 'ehlo' | 'starttls' | 'mail' | 'rcpt' | 'data' | 'dot';

/** What is done in place of a reply; `deaf` replies once more and reads nothing from then on. */
type Fault =
  'hang' | 'reset' | '421' | 'fin' | 'drip' | 'endless' | 'no-line-end' | 'long-lines' | 'deaf' | 'tls' | 'tls-reset';

type Faults = { readonly [step in Step]?: Fault };

const steps: readonly Step[] = ['greeting', 'ehlo', 'mail', 'rcpt', 'data', 'dot'];
const stepOf = (nth: number, from = 0): Step => steps[from + (nth % (steps.length - from))] ?? 'dot';

/** By number of the peer among those of its kind, so that all steps occur. */
const faultsOf: Readonly<Partial<Record<PeerKind, (nth: number) => Faults>>> = {
  silent: () => ({ greeting: 'hang' }),
  'silent at a step': (nth) => ({ [stepOf(nth, 1)]: 'hang' }),
  'one byte a second': (nth) => ({ [stepOf(nth)]: 'drip' }),
  'no reply to the dot': () => ({ dot: 'hang' }),
  // After a failed handshake half of them take the message in clear text.
  'hanging STARTTLS': (nth) => ({ starttls: 'hang', ...(nth % 2 === 0 && { mail: 'hang' }) }),
  'endless replies': (nth) => ({ [stepOf(nth)]: 'endless' }),
  'no line ends': (nth) => ({ [stepOf(nth)]: 'no-line-end' }),
  'lines of 64 KB': (nth) => ({ [stepOf(nth)]: 'long-lines' }),
  reset: (nth) => ({ [stepOf(nth)]: 'reset' }),
  '421': (nth) => ({ [stepOf(nth)]: '421' }),
  'reads nothing': () => ({ data: 'deaf' }),
  'TLS dies': () => ({ starttls: 'tls-reset', mail: 'hang' }),
  'wrong certificate': () => ({ starttls: 'tls' }),
  'half-open': (nth) => ({ [stepOf(nth)]: 'fin' }),
};

const { places, port, counters, key, isDeaf } = workerData as BadPeersWork;
const counts = new Int32Array(counters);
const servers: Server[] = [];
const block64 = Buffer.alloc(65_536, 'a');
const longLine = Buffer.from(`220-${'a'.repeat(65_530)}\r\n`);
const shortLines = Buffer.from('220-and so on\r\n'.repeat(500));

/** One connection of a peer. */
class Conversation {
  #socket: Socket;
  readonly #faults: Faults;
  readonly #isGood: boolean;
  #rest = '';
  #isInText = false;

  constructor(socket: Socket, kind: PeerKind | 'good', nth: number) {
    this.#socket = socket;
    this.#isGood = kind === 'good';
    this.#faults = kind === 'good' ? {} : (faultsOf[kind]?.(nth) ?? {});
    const at = this.#isGood ? 2 : 1;
    Atomics.add(counts, at, 1);
    socket.on('close', () => Atomics.sub(counts, at, 1)).on('error', () => undefined);
    socket.on('end', () => socket.end());
    this.#listen();
    this.#answer('greeting', '220 peer.example ready');
  }

  #listen(): void {
    this.#socket.setEncoding('latin1').on('data', (text: string) => this.#read(text));
  }

  #read(text: string): void {
    this.#rest += text;
    for (;;) {
      const end = this.#rest.indexOf(this.#isInText ? '\r\n.\r\n' : '\r\n');
      if (end < 0) return;
      const line = this.#rest.slice(0, end);
      this.#rest = this.#rest.slice(end + (this.#isInText ? 5 : 2));
      if (this.#isInText) {
        this.#isInText = false;
        if (this.#answer('dot', '250 2.0.0 Fine')) Atomics.add(counts, this.#isGood ? 0 : 3, 1);
      } else this.#command(line.slice(0, 4).toUpperCase());
    }
  }

  #command(verb: string): void {
    if (verb === 'EHLO') {
      const starttls =
        this.#faults.starttls === undefined || this.#socket instanceof TLSSocket ? '' : '\r\n250-STARTTLS';
      this.#answer('ehlo', `250-peer.example${starttls}\r\n250-PIPELINING\r\n250 8BITMIME`);
    } else if (verb === 'STAR') {
      this.#socket.write('220 2.0.0 Go ahead\r\n');
      this.#startTls();
    } else if (verb === 'MAIL') this.#answer('mail', '250 2.1.0 Fine');
    else if (verb === 'RCPT') this.#answer('rcpt', '250 2.1.5 Fine');
    else if (verb === 'DATA') this.#isInText = this.#answer('data', '354 Go ahead');
    else if (verb === 'QUIT') this.#socket.end('221 2.0.0 Bye\r\n');
    else this.#socket.write('250 2.0.0 Fine\r\n');
  }

  #startTls(): void {
    const { starttls } = this.#faults;
    this.#socket.removeAllListeners('data');
    if (starttls === 'tls-reset') this.#socket.once('data', () => this.#socket.resetAndDestroy());
    if (starttls !== 'tls') return;
    const plain = this.#socket;
    this.#socket = new TLSSocket(plain, { isServer: true, ...key });
    this.#socket.on('error', () => plain.destroy());
    this.#listen();
  }

  /** False where it did something else. */
  #answer(step: Step, reply: string): boolean {
    const fault = this.#faults[step];
    if (fault === undefined || fault === 'deaf') this.#socket.write(`${reply}\r\n`);
    if (fault === undefined) return true;
    const code = reply.slice(0, 3);
    if (fault === 'deaf') this.#socket.pause();
    else if (fault === 'reset') this.#socket.resetAndDestroy();
    else if (fault === 'fin') this.#socket.end();
    else if (fault === '421') this.#socket.end('421 4.3.2 Later\r\n');
    else if (fault === 'drip') this.#drip(`${code} ${'a'.repeat(100_000)}`);
    else if (fault === 'endless')
      this.#pour(Buffer.from(shortLines.toString('latin1').replaceAll('220', code), 'latin1'));
    else if (fault === 'long-lines') {
      this.#pour(Buffer.concat([Buffer.from(`${code}-`), longLine.subarray(4)]));
    } else if (fault === 'no-line-end') {
      this.#socket.write(`${code}-`);
      this.#pour(block64);
    }
    return false;
  }

  #drip(text: string): void {
    let at = 0;
    const timer = setInterval(() => this.#socket.write(text[at++] ?? 'a'), 1000);
    this.#socket.on('close', () => clearInterval(timer));
  }

  #pour(bytes: Buffer): void {
    if (!this.#socket.destroyed) this.#socket.write(bytes, () => setImmediate(() => this.#pour(bytes)));
  }
}

for (const { kind, nth, address } of places) {
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (socket) => new Conversation(socket, kind, nth));
  server.listen({ port, host: address, backlog: isDeaf ? 1 : 511 });
  await once(server, 'listening');
  servers.push(server);
}
Atomics.add(counts, 4, 1);
// The system completes as many connections as wait, and drops what comes then.
if (isDeaf) Atomics.wait(counts, 5, 0);
