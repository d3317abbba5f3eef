import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defer, defineEndpoint, definePlugin, next, problem, respond, z } from 'postern/plugin';
import { networkOf, parseNetworks, writeFileAtomic } from 'postern/plugin';

const seconds = (/** @type {number} */ usual) => z.int().min(1).max(31_536_000).default(usual);
const Options = z.strictObject({
  delay: seconds(300).describe('So long a new pair has to wait. Seconds.'),
  expiry: seconds(172_800).describe('Seconds after which a waiting pair is forgotten.'),
  retention: seconds(3_110_400).describe('A known pair is forgotten when it was silent for so long. Seconds.'),
  allow: z.array(z.string()).default(['127.0.0.0/8', '::1']).describe('Addresses and networks that never wait.'),
  ipv4Prefix: z.int().min(8).max(32).default(24).describe('Clients with so many bits in common are one.'),
  mostPairs: z.int().min(10).max(100_000).default(10_000).describe('Of each list; the longest untouched has to go.'),
});

/** Asks clients that nobody here knows to come again later: most of those that send spam never do. */
export const greylisting = definePlugin({
  name: 'greylisting',
  options: Options,
  views: fileURLToPath(new URL('views', import.meta.url)),
  async setup({ smtp, http, metrics, health, every, folder, onClose, clock }, { options: given }) {
    let [options, allowed] = [given, parseNetworks(given.allow)];
    const file = join(await folder('greylisting'), 'pairs.txt');
    /** By pair, as JSON, the time of its first try and of its last mail; the longest untouched is in front. */
    const lists = /** @type {Record<string, Map<string, number>>} */ ({ waiting: new Map(), known: new Map() });
    const { waiting, known } = lists;
    const text = existsSync(file) ? readFileSync(file, 'utf8') : '';
    for (const [, list, at, pair] of text.matchAll(/^(waiting|known) (\d+) (.+)$/gm)) lists[list].set(pair, Number(at));
    let [changes, saved, savedAt, saving] = [0, 0, clock.now(), Promise.resolve()];
    const deferred = metrics.counter('greylisting_deferred_total', 'Recipients whose client was told to come again.');
    const passed = metrics.counter('greylisting_passed_total', 'Pairs that came again and are known now.');
    metrics.gauge('greylisting_pairs', 'Pairs in each list.', ['list'], (gauge) => {
      for (const [list, { size }] of Object.entries(lists)) gauge.set({ list }, size);
    });

    smtp.on('rcptTo', { order: 'last' }, ({ transaction: { session, reversePath }, address }) => {
      const { listener, remote, user, internal, dryRun } = session;
      if (listener.mode !== 'mx' || user || internal || allowed.has(remote.address)) return next();
      const client = networkOf(remote.address, { ipv4: options.ipv4Prefix, ipv6: 64 });
      const from = senderKey(reversePath?.address ?? '');
      const pair = JSON.stringify({ client, from, to: address.address.toLowerCase() });
      const first = waiting.get(pair) ?? clock.now();
      const left = known.has(pair) ? 0 : options.delay - Math.floor((clock.now() - first) / 1000);
      if (left <= 0 && !dryRun) pass(pair);
      if (left <= 0) return next();
      if (!dryRun) put(waiting, pair, first);
      if (!dryRun) deferred.inc();
      return defer(451, '4.7.1', `Greylisted: please try again in ${left} seconds`);
    });

    function pass(/** @type {string} */ pair) {
      if (waiting.delete(pair)) passed.inc();
      put(known, pair, clock.now());
    }

    /** @type {(list: Map<string, number>, pair: string, time: number) => void} */
    function put(list, pair, time) {
      const [oldest = ''] = list.delete(pair) || list.size < options.mostPairs ? [] : list.keys();
      list.delete(oldest);
      list.set(pair, time);
      changes += 1;
    }

    const save = () => (saving = saving.then(sweepAndWrite, sweepAndWrite));
    async function sweepAndWrite() {
      for (const [pair, first] of waiting) if (first + options.expiry * 1000 < clock.now()) waiting.delete(pair);
      for (const [pair, last] of known) if (last + options.retention * 1000 < clock.now()) known.delete(pair);
      const now = changes;
      let lines = '';
      for (const [pair, first] of waiting) lines += `waiting ${first} ${pair}\n`;
      for (const [pair, last] of known) lines += `known ${last} ${pair}\n`;
      if (now !== saved) await writeFileAtomic(file, lines);
      [saved, savedAt] = [now, clock.now()];
    }
    every(30, save);
    onClose(save);
    const why = 'The lists cannot be written: after a restart clients may have to wait again.';
    health.check('greylisting', () => ({ status: clock.now() < savedAt + 120_000 ? 'up' : 'degraded', why }));

    http.navigate({ title: 'Greylisting', href: '/greylisting', order: 60, role: 'read' });
    http.mount([
      defineEndpoint({
        method: 'GET',
        path: '/greylisting',
        summary: 'Clients that wait and clients that are known',
        group: 'Site',
        access: 'read',
        view: 'pairs.njk',
        handle: () => ({ delay: options.delay, waiting: newest(waiting), known: newest(known) }),
      }),
      defineEndpoint({
        method: 'POST',
        path: '/greylisting/release',
        summary: 'Let a waiting pair pass',
        group: 'Site',
        access: 'operate',
        body: { kind: 'fields', schema: z.object({ client: z.string(), from: z.string(), to: z.string() }) },
        handle({ body }) {
          const pair = JSON.stringify(body); // in the order of the schema
          if (!waiting.has(pair)) throw problem('not-found', 'This pair does not wait.');
          pass(pair);
          const audit = { action: 'greylisting.release', selector: body };
          return respond({ status: 200, model: body, location: '/greylisting', notice: 'It may pass now.', audit });
        },
      }),
    ]);
    return { reconfigure: (next) => void ([options, allowed] = [next, parseNetworks(next.allow)]) };
  },
});

/** Mailing lists put a number or the recipient into each sender: those are one. */
const senderKey = (/** @type {string} */ address) => address.toLowerCase().replaceAll(/\+.*(?=@)|\d+(?=.*@)/g, '#');

/** As pages and scripts see it. */
function newest(/** @type {Map<string, number>} */ list) {
  const rows = [...list].slice(-100).map(([pair, at]) => ({ ...JSON.parse(pair), at: new Date(at).toISOString() }));
  return { count: list.size, newest: rows.toReversed() };
}
