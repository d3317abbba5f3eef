import { change, defer, definePlugin, next, reject, secret, z } from 'postern/plugin';
import { askClamav } from './clamav.js';
import { askRspamd, spamFields } from './rspamd.js';

const Options = z.strictObject({
  rspamd: z
    .url({ protocol: /^https?$/ })
    .optional()
    .describe('Its worker: http://127.0.0.1:11333.'),
  rspamdPassword: secret().optional().describe('When the worker asks for one.'),
  clamav: z
    .union([z.string().startsWith('/'), z.strictObject({ host: z.string(), port: z.int().min(1).max(65_535) })])
    .optional()
    .describe('Socket of clamd, or its host and port.'),
  seconds: z.number().min(0.1).max(120).default(20).describe('How long a scanner may take.'),
  away: z
    .enum(['defer', 'accept'])
    .default('defer')
    .describe('What is done with mail while a scanner does not answer.'),
});

/** Asks rspamd and ClamAV about mail from others, before it gets its 250. */
export const scanners = definePlugin({
  name: 'scanners',
  options: Options,
  setup({ smtp, metrics, log, health }, { options: given }) {
    let options = given;
    const down = /** @type {Map<string, string>} */ (new Map());
    const scans = metrics.counter('scanners_messages_total', 'Messages, by scanner and result.', ['scanner', 'result']);
    health.check('scanners', () =>
      down.size === 0 ? { status: 'up' } : { status: 'degraded', why: [...down.values()].join(' ') },
    );

    smtp.on('message', { order: 'content', timeLimitMs: 300_000 }, async ({ transaction, message }) => {
      if (transaction.session.user) return next();
      const found = await Promise.all([
        ...(options.clamav ? [ask('clamav', () => askClamav(message, options))] : []),
        ...(options.rspamd ? [ask('rspamd', () => askRspamd(transaction, message, options))] : []),
      ]);
      // A refusal counts even when the other scanner is away.
      const worst = found.toSorted((one, other) => ranks.indexOf(one.what) - ranks.indexOf(other.what))[0];
      if (worst?.what === 'refuse') return reject(550, '5.7.1', worst.why);
      if (worst?.what === 'later') return defer(451, '4.7.1', worst.why);
      if (worst?.what === 'away' && options.away === 'defer') return defer(451, '4.3.2', 'Mail cannot be scanned now');
      const marks = found.flatMap(({ marks = [] }) => marks);
      return options.rspamd ? change(...removed, ...marks) : next();
    });

    /** @param {() => Promise<Finding>} scan */
    async function ask(/** @type {string} */ scanner, scan) {
      const finding = await scan().catch((err) => {
        log.warn({ scanner, err }, 'a scanner does not answer');
        return { what: /** @type {const} */ ('away'), why: `${scanner} does not answer.`, marks: [] };
      });
      if (finding.what === 'away') down.set(scanner, finding.why);
      else down.delete(scanner);
      scans.inc({ scanner, result: finding.what });
      return finding;
    }
    return {
      reconfigure(next) {
        options = next;
        down.clear();
      },
    };
  },
});

/** @typedef {import('./answers.js').Finding} Finding */
const ranks = ['refuse', 'later', 'away', 'fine'];
const removed = spamFields.map((name) => /** @type {const} */ ({ change: 'remove-header', name }));
