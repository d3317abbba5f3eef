import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { abortAfter, defer, definePlugin, hold, next, reject, z } from 'postern/plugin';

const Options = z.strictObject({
  socket: z
    .string()
    .regex(/^\/|^[^/:]+:\d{1,5}$/, 'has to be a path or HOST:PORT')
    .default('/run/clamav/clamd.ctl')
    .describe('Where clamd listens: the path of its socket, or HOST:PORT.'),
  timeout: z.number().min(0.1).max(300).default(60).describe('For one message. Seconds.'),
  infected: z.enum(['reject', 'hold']).default('reject').describe('What happens to mail with a virus.'),
  whenAway: z.enum(['defer', 'accept']).default('defer').describe('What happens to mail while clamd gives no result.'),
  maxBytes: z
    .int()
    .min(1000)
    .max(4_000_000_000)
    .default(25_000_000)
    .describe('Longer messages are not scanned: at most `StreamMaxLength` of clamd.'),
});

/** Has each message scanned by ClamAV. */
export const clamav = definePlugin({
  name: 'clamav',
  options: Options,
  setup({ smtp, metrics, health, onClose, log }, { options: given }) {
    let [options, failure] = [given, ''];
    const stopping = new AbortController();
    onClose(() => stopping.abort());
    const scanned = metrics.counter('clamav_messages_total', 'Messages, by the result of their scan.', ['result']);
    const result = () => (options.whenAway === 'defer' ? 'deferred' : 'accepted without a scan');
    const why = () => `clamd gives no result (${failure}). Mail is ${result()}.`;
    health.check('clamav', () => (failure === '' ? { status: 'up' } : { status: 'degraded', why: why() }));

    smtp.on('message', { order: 'content', timeLimitMs: 310_000 }, async ({ transaction, message }) => {
      if (message.size > options.maxBytes) return next();
      const answer = await scan(message.open()).catch(({ code, name }) => (typeof code === 'string' ? code : name));
      const [, virus] = /^stream: (.+) FOUND\0$/.exec(answer) ?? [];
      const isKnown = virus !== undefined || answer === 'stream: OK\0';
      scanned.inc({ result: virus === undefined ? (isKnown ? 'clean' : 'none') : 'infected' });
      failure = isKnown ? '' : printable(answer);
      if (virus !== undefined) {
        const name = printable(virus);
        log.warn({ transaction: transaction.id, virus: name }, 'a message has a virus');
        return options.infected === 'hold'
          ? hold(`virus ${name}`)
          : reject(550, '5.7.1', `The message has a virus: ${name}`);
      }
      if (isKnown || options.whenAway === 'accept') return next();
      return defer(451, '4.7.1', 'The message cannot be checked now');
    });

    /** What clamd answers to INSTREAM: pieces with their length in front, and an empty one at the end. */
    async function scan(/** @type {AsyncIterable<Buffer>} */ message) {
      const [, host = '', port] = /^([^/:]+):(\d+)$/.exec(options.socket) ?? [];
      const socket = port === undefined ? connect(options.socket) : connect(Number(port), host);
      const signal = abortAfter(options.timeout * 1000, stopping.signal);
      signal.addEventListener('abort', () => socket.destroy(signal.reason));
      const answer = text(bounded(socket)); // may come before the end of the message
      answer.catch(() => undefined);
      try {
        await once(socket, 'connect');
        socket.write('zINSTREAM\0');
        for await (const piece of message) {
          if (!socket.writable) break; // it has said why
          const length = Buffer.alloc(4);
          length.writeUInt32BE(piece.length);
          socket.write(length);
          if (!socket.write(piece)) await Promise.race([once(socket, 'drain'), answer]);
        }
        socket.write(Buffer.alloc(4));
        return await answer;
      } finally {
        socket.destroy();
      }
    }
    return { reconfigure: (next) => void (options = next) };
  },
});

/** The names of viruses are short. */
async function* bounded(/** @type {AsyncIterable<Buffer>} */ answer) {
  let bytes = 0;
  for await (const piece of answer) {
    bytes += piece.length;
    if (bytes > 4096) throw new RangeError('The answer is too long.');
    yield piece;
    if (piece.includes(0)) return;
  }
}

const printable = (/** @type {string} */ said) => said.replaceAll(/[^ -~]/g, '').slice(0, 200) || 'no answer';
