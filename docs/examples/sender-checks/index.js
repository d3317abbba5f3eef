import { authenticate } from 'mailauth';
import { change, configuration, defer, definePlugin, dns, next, reject, z } from 'postern/plugin';
import { parseNetworks, reversedAddress } from 'postern/plugin';

const Options = z.strictObject({
  authservId: z.string().min(1).max(255).optional().describe('Who says the results; the host name if absent.'),
  dmarc: z.enum(['report', 'reject']).default('report').describe('`reject` does what domains with p=reject ask for.'),
  blocklists: z.array(z.hostname()).max(10).default([]).describe('DNS zones that list addresses of clients.'),
  trustedResults: z
    .array(z.string().toLowerCase())
    .default([])
    .describe('Servers whose results stay in mail that comes in.'),
  allow: z.array(z.string()).default(['127.0.0.0/8', '::1']).describe('Addresses and networks that are not checked.'),
});
const field = 'Authentication-Results';
const listingNote = 'sender-checks.listing';
/** Each costs a question to the DNS and a verification; nobody needs more. */
const mostSignatures = 10;

/** Says of mail whether its sender is who it says (SPF, DKIM, DMARC), and asks block lists about clients. */
export const senderChecks = definePlugin({
  name: 'sender-checks',
  options: Options,
  needs: { configuration, dns },
  setup({ smtp, metrics, log }, { options: given, configuration, dns }) {
    let [options, allowed] = [given, parseNetworks(given.allow)];
    const results = metrics.counter('sender_checks_total', 'Messages, by check and result.', ['check', 'result']);
    const refused = metrics.counter('sender_checks_refused_total', 'Recipients and messages refused.', ['why']);

    /** @type {(session: import('postern/plugin').SmtpSession) => boolean} */
    const isStranger = ({ listener, internal, user, remote }) =>
      listener.mode === 'mx' && !internal && !user && !allowed.has(remote.address);

    /** The block list that has the client (RFC 5782). Silence is no opinion; 127.255.255.x is a list's complaint about us. */
    async function findListing(/** @type {string} */ ip) {
      const answers = options.blocklists.map(async (zone) => {
        const { records } = await dns.lookup(`${reversedAddress(ip)}.${zone}`, 'A');
        return records.some((code) => /^127\.(?!255\.255\.)/.test(code)) ? zone : undefined;
      });
      return (await Promise.all(answers)).find((zone) => zone !== undefined);
    }

    // Asked at once and answered at RCPT: our own users may call from anywhere, and sign in before that.
    smtp.on('connect', ({ session }) => {
      if (isStranger(session)) session.notes.set(listingNote, findListing(session.remote.address));
      return next();
    });
    smtp.on('rcptTo', async ({ transaction: { session } }) => {
      const zone = session.user ? undefined : await session.notes.get(listingNote);
      if (typeof zone !== 'string') return next();
      if (!session.dryRun) refused.inc({ why: 'blocklist' });
      return reject(550, '5.7.1', `${session.remote.address} is listed by ${zone}`);
    });

    smtp.on('message', { order: 'content', timeLimitMs: 60_000 }, async ({ transaction, message }) => {
      const { session, reversePath } = transaction;
      const present = message.headers.filter(([name]) => name.toLowerCase() === field.toLowerCase());
      const trusted = present
        .map(([, value]) => value)
        .filter((value) => options.trustedResults.includes(sayer(value)));
      if (!isStranger(session)) return present.length === 0 ? next() : change(...resultsOf(trusted));
      const signatures = message.headers.filter(([name]) => name.toLowerCase() === 'dkim-signature');
      if (signatures.length > mostSignatures) return refuse('signatures', 'Too many DKIM signatures');

      const authservId = options.authservId ?? configuration.hostname;
      const { headers, spf, dkim, dmarc } = await authenticate(message.open(), {
        ip: session.remote.address,
        helo: session.hello?.name,
        sender: reversePath?.address,
        mta: authservId,
        resolver: /** @type {import('mailauth').DNSResolver} */ (dns.resolve),
        disableArc: true,
        disableBimi: true,
      });
      const check = { spf: best([spf]), dkim: best(dkim.results), dmarc: best([dmarc]) };
      for (const [name, result] of Object.entries(check)) results.inc({ check: name, result });
      log.info({ transaction: transaction.id, from: dkim.headerFrom, ...check }, 'checked a sender');
      if (options.dmarc === 'reject') {
        if (dkim.headerFrom.length !== 1) return refuse('from', 'The From field must have one address');
        if (check.dmarc === 'temperror') return defer(451, '4.7.0', 'The policy of the sender is not known now');
        const asked = dmarc && dmarc.policy?.toLowerCase() === 'reject' && (dmarc.pct ?? 100) === 100;
        if (asked && check.dmarc === 'fail') return refuse('dmarc', `${dmarc.domain} asks to refuse this (DMARC)`);
      }
      return change(...resultsOf([ownResults(headers), ...trusted]));
    });

    /** @type {(why: string, text: string) => import('postern/plugin').Verdict} */
    function refuse(why, text) {
      refused.inc({ why });
      return reject(550, '5.7.1', text);
    }
    return { reconfigure: (next) => void ([options, allowed] = [next, parseNetworks(next.allow)]) };
  },
});

/** Takes all results that came away, for anybody can write them (RFC 8601 §5), and puts these in their place. */
const resultsOf = (/** @type {readonly string[]} */ values) => [
  /** @type {const} */ ({ change: 'remove-header', name: field }),
  ...values.map((value) => /** @type {const} */ ({ change: 'add-header', name: field, value })),
];

/** Who says it, if that is written plainly. */
const sayer = (/** @type {string} */ value) => /^[^\s;()"]+(?=\s*;)/.exec(value)?.[0].toLowerCase() ?? '';

/** The value of our field among those that mailauth has made. */
const ownResults = (/** @type {string} */ headers) =>
  headers
    .slice(headers.indexOf(`${field}:`) + field.length + 1)
    .trim()
    .replaceAll(/[^\t\r\n -~]/g, '?');

/** A signature that is good counts, whatever others are. */
function best(/** @type {readonly (false | { status: { result: string } })[]} */ checks) {
  const words = checks.map((check) => (check ? check.status.result : 'none'));
  return words.includes('pass') ? 'pass' : (words[0] ?? 'none');
}
