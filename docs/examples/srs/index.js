import { createHmac, timingSafeEqual } from 'node:crypto';
import { configuration, definePlugin, next, parseAddress, queue, route, secret, z } from 'postern/plugin';

const Options = z.strictObject({
  forward: z
    .record(z.email().toLowerCase(), z.array(z.email()).min(1))
    .default({})
    .describe('Addresses here, and the addresses elsewhere that get their mail.'),
  secret: secret().min(16).describe('Key of the hash, so that nobody else can make an address that is taken back.'),
  domain: z.string().optional().describe('Behind the `@` of rewritten senders; the first local domain if absent.'),
  expiry: z.int().min(1).max(500).default(21).describe('Bounces are taken back for so long. Days.'),
});
const letters = 'abcdefghijklmnopqrstuvwxyz234567';
const cycle = letters.length ** 2; // days after which a time stamp comes again

/** Forwards mail with a sender of this server's own, by the Sender Rewriting Scheme, and takes its bounces back. */
export const srs = definePlugin({
  name: 'srs',
  options: Options,
  needs: { configuration, queue },
  setup({ smtp, metrics, clock }, { options: given, configuration, queue }) {
    let options = given;
    const forwarded = metrics.counter('srs_messages_total', 'Messages sent on.', ['kind']);
    const own = () => options.domain?.toLowerCase() ?? configuration.domains[0] ?? '';
    const today = () => Math.floor(clock.now() / 86_400_000) % cycle;

    smtp.on('rcptTo', { order: 'route' }, ({ transaction: { reversePath }, address }) => {
      const to = options.forward[address.address.toLowerCase()];
      if (to !== undefined) return route({ target: 'srs', destination: '', data: { kind: 'forward', to } });
      const sender = reversePath === null && address.domain === own() ? senderOf(address.local) : undefined;
      if (sender === undefined) return next();
      return route({ target: 'srs', destination: '', data: { kind: 'bounce', to: [sender] } });
    });

    smtp.deliverTo('srs', {
      start({ reversePath }, recipients) {
        /** @type {Parameters<import('postern/plugin').Delivery['body']>[0]} */
        let message;
        return Promise.resolve({
          body: (given) => Promise.resolve(void (message = given)),
          async commit() {
            for (const { hop } of recipients) {
              const { kind, to } = /** @type {{ kind: string, to: string[] }} */ (Object(hop).data);
              await queue.enqueue({
                reversePath: reversePath && rewritten(reversePath),
                recipients: to.map(parseAddress),
                content: () => message.open(message.traceOffset),
              });
              forwarded.inc({ kind });
            }
            return recipients.map((recipient) => ({ recipient, outcome: 'delivered' }));
          },
          abort: () => Promise.resolve(), // what is in the queue stays there; the client may send it again
        });
      },
    });

    const hash = (/** @type {string} */ text) =>
      createHmac('sha256', options.secret).update(text.toLowerCase()).digest('hex').slice(0, 12);
    const isHash = (/** @type {string} */ given, /** @type {string} */ text) =>
      timingSafeEqual(Buffer.from(given.toLowerCase()), Buffer.from(hash(text)));

    /** A sender that SPF allows this server to use. */
    function rewritten(/** @type {import('postern/plugin').Address} */ sender) {
      const { local, domain } = sender;
      if (domain === own() || configuration.domains.includes(domain)) return sender;
      const chained = /^SRS0(=.+)$|^SRS1=[^=]+=([^=]+=.+)$/is.exec(local); // another forwarder has rewritten it
      const rest = chained ? (chained[2] ?? `${domain}=${chained[1]}`) : `${stamp(today())}=${domain}=${local}`;
      try {
        return made(`SRS${chained ? 1 : 0}=${hash(rest)}=${rest}`, own());
      } catch {
        return sender; // it would be too long for an address
      }
    }

    /** The sender that was rewritten, if we did that, and not too long ago. */
    function senderOf(/** @type {string} */ text) {
      const [, chain, given = '', rest = ''] = /^SRS([01])=([0-9a-f]{12})=(.+)$/is.exec(text) ?? [];
      if (chain === undefined || !isHash(given, rest)) return undefined;
      const [first = '', domain = ''] = rest.split('=', 2);
      if (chain === '1') return made(`SRS0${rest.slice(first.length + 1)}`, first).address;
      const age = (today() - day(first) + cycle) % cycle;
      return age > options.expiry ? undefined : made(rest.slice(first.length + domain.length + 2), domain).address;
    }
    return { reconfigure: (next) => void (options = next) };
  },
});

const stamp = (/** @type {number} */ day) => `${letters[day >> 5]}${letters[day & 31]}`;
const day = (/** @type {string} */ stamp) =>
  letters.indexOf(stamp.charAt(0).toLowerCase()) * letters.length + letters.indexOf(stamp.charAt(1).toLowerCase());

/** @throws Problem when it is no address, or too long a one */
const made = (/** @type {string} */ local, /** @type {string} */ domain) =>
  parseAddress(`"${local.replaceAll(/["\\]/g, String.raw`\$&`)}"@${domain}`);
