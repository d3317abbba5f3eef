import { createHash } from 'node:crypto';
import { abortAfter, definePlugin, next, route, secret, z } from 'postern/plugin';

const Options = z.strictObject({
  url: z
    .url({ protocol: /^https?$/ })
    .describe('Messages are posted there and nowhere else; redirects are not followed.'),
  token: secret().min(16).describe('Sent as `Authorization: Bearer …`.'),
  recipients: z
    .array(
      z
        .string()
        .regex(/^[^@]*@[^@]+$/, 'has to be an address or `@domain`')
        .toLowerCase(),
    )
    .min(1)
    .describe('Addresses, and domains as `@example.org`, of which the mail goes there.'),
  timeout: z.number().min(0.1).max(600).default(30).describe('For one message to one recipient. Seconds.'),
});
const permanent = [400, 410, 413, 415, 422]; // the API does not want this message; everything else may be mended
const maxAnswerBytes = 4096;

/** Posts mail to an API. The queue tries again what the API does not take, and returns what it refuses. */
export const httpDelivery = definePlugin({
  name: 'http-delivery',
  options: Options,
  setup({ smtp, metrics, health, onClose, log }, { options: given }) {
    let [options, failure] = [given, ''];
    const stopping = new AbortController();
    onClose(() => stopping.abort());
    const posted = metrics.counter('http_delivery_posted_total', 'Messages posted, by what came of it.', ['outcome']);
    const why = () => `The API does not take mail: ${failure}. It waits in the queue.`;
    health.check('http-delivery', () => (failure === '' ? { status: 'up' } : { status: 'degraded', why: why() }));

    smtp.on('rcptTo', { order: 'route' }, ({ address }) => {
      const names = [address.address.toLowerCase(), `@${address.domain}`];
      if (!names.some((name) => options.recipients.includes(name))) return next();
      return route({ target: 'http-delivery', destination: new URL(options.url).host }, { queued: true });
    });

    smtp.deliverTo('http-delivery', {
      start: (transaction, recipients) => {
        /** @type {Parameters<import('postern/plugin').Delivery['body']>[0]} */
        let message;
        return Promise.resolve({
          body: (given) => Promise.resolve(void (message = given)),
          async commit() {
            const outcomes = [];
            for (const recipient of recipients) {
              const result = await post(message, transaction, recipient.address.address);
              posted.inc({ outcome: result.outcome });
              outcomes.push({ recipient, ...result });
            }
            return outcomes;
          },
          abort: () => Promise.resolve(), // a message that was posted cannot be taken back
        });
      },
    });

    /** @type {(message: { open(offset?: number): AsyncIterable<Buffer>, traceOffset: number }, transaction: import('postern/plugin').Transaction, to: string) => Promise<any>} */
    async function post(message, { id, reversePath }, to) {
      const headers = {
        Authorization: `Bearer ${options.token}`,
        'Content-Type': 'message/rfc822',
        'Idempotency-Key': createHash('sha256').update(`${id} ${to}`).digest('hex').slice(0, 32), // of each attempt
        'Envelope-From': encodeURIComponent(reversePath?.address ?? ''),
        'Envelope-To': encodeURIComponent(to),
      };
      const body = message.open(message.traceOffset);
      const signal = abortAfter(options.timeout * 1000, stopping.signal);
      try {
        const init = { method: 'POST', headers, body, duplex: 'half', signal, redirect: 'manual' };
        const answer = await fetch(options.url, /** @type {any} */ (init));
        const said = await beginning(answer);
        const isRefused = permanent.includes(answer.status);
        failure = answer.ok || isRefused ? '' : `HTTP ${answer.status}`;
        if (answer.ok) return { outcome: 'delivered' };
        log.warn({ transaction: id, to, status: answer.status, said }, 'the API did not take a message');
        if (isRefused) return { outcome: 'refused', code: 550, status: '5.6.0', text: said || `HTTP ${answer.status}` };
      } catch (error) {
        failure = String(Object(error).cause?.code ?? Object(error).name);
        log.warn({ transaction: id, to, err: error }, 'the API could not be asked');
      }
      return { outcome: 'deferred', code: 451, status: '4.4.0', text: failure };
    }
    return { reconfigure: (next) => void (options = next) };
  },
});

/** One line of printable ASCII from what an answer begins with; the rest is not read. */
async function beginning(/** @type {Response} */ answer) {
  let bytes = Buffer.alloc(0);
  for await (const chunk of answer.body ?? []) {
    bytes = Buffer.concat([bytes, chunk]);
    if (bytes.length >= maxAnswerBytes) break;
  }
  return bytes
    .toString('latin1')
    .replaceAll(/[^ -~]+/g, ' ')
    .trim()
    .slice(0, 200);
}
