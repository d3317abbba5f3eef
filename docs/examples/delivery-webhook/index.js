import { createHmac, randomUUID } from 'node:crypto';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { abortAfter, configuration, defineEndpoint, definePlugin, secret, writeFileAtomic, z } from 'postern/plugin';

const names = /** @type {const} */ (['accepted', 'delivered', 'deferred', 'bounced', 'outcome']);
const Options = z.strictObject({
  url: z
    .url({ protocol: /^https?$/ })
    .describe('Events are posted there and nowhere else; redirects are not followed.'),
  secret: secret().min(16).describe('Signs each event; only the target knows it too.'),
  events: z.array(z.enum(names)).default(['delivered', 'deferred', 'bounced', 'outcome']),
  timeout: z.number().min(0.1).max(60).default(10).describe('For one try. Seconds.'),
  giveUp: z.int().min(60).max(2_592_000).default(86_400).describe('What is older is dropped when it fails. Seconds.'),
  maxEvents: z.int().min(1).max(100_000).default(10_000).describe('Maximum of waiting events; new ones are dropped.'),
  maxBytes: z.int().min(1000).max(100_000_000).default(16_000_000).describe('The same, when they are so large.'),
});
const refusals = ['400', '413', '422']; // the event itself is not wanted; what else is not 2xx may be gone tomorrow
const longestPauseMs = 300_000;

/** Posts what becomes of mail to a URL, signed, and again until it is taken. */
export const deliveryWebhook = definePlugin({
  name: 'delivery-webhook',
  options: Options,
  needs: { configuration },
  views: fileURLToPath(new URL('views', import.meta.url)),
  async setup({ smtp, http, metrics, health, every, folder, onClose, clock, log }, { options: given, configuration }) {
    let [options, bytes, failures, pausedUntil, posting] = [given, 0, 0, 0, Promise.resolve()];
    const journal = await folder('delivery-webhook');
    const waiting = new Map(/** @type {[id: string, body: string][]} */ ([])); // each in a file, too
    const latest = /** @type {Record<'id' | 'event' | 'result' | 'answer' | 'at', string>[]} */ ([]);
    const stopping = new AbortController();
    const events = metrics.counter('delivery_webhook_events_total', 'Events, by what came of a try.', ['result']);
    metrics.gauge('delivery_webhook_waiting', 'Events that wait.', [], (gauge) => gauge.set(waiting.size));
    const fileOf = (/** @type {string} */ id) => join(journal, `${id}.json`);
    const now = () => new Date(clock.now()).toISOString();

    for (const event of names) smtp.watch(event, (about) => keep(event, about));
    async function keep(/** @type {typeof names[number]} */ event, /** @type {object} */ about) {
      if (!options.events.includes(event)) return;
      if (waiting.size >= options.maxEvents || bytes >= options.maxBytes) return events.inc({ result: 'dropped' });
      const at = now();
      const head = { id: `${at.replaceAll(/\D/g, '')}-${randomUUID()}`, event, at, server: configuration.hostname };
      const body = JSON.stringify({ ...head, ...plain(about), ...head });
      await writeFileAtomic(fileOf(head.id), body).catch((err) => log.error({ err }, 'a restart would lose an event'));
      put(head.id, body);
    }

    function put(/** @type {string} */ id, /** @type {string} */ body) {
      waiting.set(id, body);
      bytes += body.length;
    }
    for (const name of (await readdir(journal)).toSorted()) {
      if (name.endsWith('.json')) put(name.slice(0, -5), await readFile(join(journal, name), 'utf8'));
      else await rm(join(journal, name)); // a write that a crash has cut short
    }

    /** Resolves with a status, or with why there is none. */
    async function post(/** @type {string} */ body) {
      const time = Math.floor(clock.now() / 1000);
      const code = createHmac('sha256', options.secret).update(`${time}.${body}`).digest('hex');
      const headers = { 'Content-Type': 'application/json', 'Postern-Signature': `t=${time},v1=${code}` };
      const signal = abortAfter(options.timeout * 1000, stopping.signal);
      try {
        const answer = await fetch(options.url, { method: 'POST', body, headers, signal, redirect: 'manual' });
        await answer.body?.cancel(); // nobody reads it, however long it is
        return String(answer.status);
      } catch (error) {
        return String(Object(error).cause?.code ?? Object(error).name);
      }
    }

    /** What fails is tried again behind the others, and after a pause that grows while everything fails. */
    async function drain() {
      for (const [id, body] of waiting) {
        const answer = clock.now() < pausedUntil ? '' : await post(body);
        if (answer === '' || stopping.signal.aborted) return;
        waiting.delete(id);
        bytes -= body.length;
        const { event, at } = JSON.parse(body);
        const isOld = Date.parse(at) + options.giveUp * 1000 < clock.now();
        const failure = refusals.includes(answer) ? 'refused' : isOld ? 'expired' : 'failed';
        const result = answer.startsWith('2') ? 'sent' : failure;
        events.inc({ result });
        latest.unshift({ id, event, result, answer, at: now() });
        latest.splice(50);
        if (result === 'failed') put(id, body);
        else await rm(fileOf(id), { force: true });
        failures = result === 'failed' ? failures + 1 : 0;
        pausedUntil = failures === 0 ? 0 : clock.now() + Math.min(longestPauseMs, 500 * 2 ** failures);
      }
    }
    every(1, () => (posting = drain()));
    onClose(() => (stopping.abort(), posting));
    const why = 'The target does not take the events; its page says what it answers.';
    health.check('delivery-webhook', () => (failures === 0 ? { status: 'up' } : { status: 'degraded', why }));
    http.navigate({ title: 'Webhook', href: '/delivery-webhook', order: 61, role: 'read' });
    http.mount([
      defineEndpoint({
        method: 'GET',
        path: '/delivery-webhook',
        summary: 'Events on their way to the webhook',
        group: 'Site',
        access: 'read',
        view: 'events.njk',
        handle: () => ({ target: new URL(options.url).host, waiting: waiting.size, bytes, failures, latest }),
      }),
    ]);
    return { reconfigure: (next) => void ([options, pausedUntil] = [next, 0]) };
  },
});

/** What an event with a transaction and an outcome say, alike and in short. */
function plain(/** @type {any} */ { transaction, recipient, ...about }) {
  const { id, reversePath } = transaction ?? about;
  const recipients = [recipient ?? transaction.recipients].flat().map(({ address }) => address.address ?? address);
  return { ...about, mail: id, reversePath: reversePath?.address ?? null, recipients };
}
