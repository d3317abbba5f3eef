import { request } from 'node:http';
import { pipeline } from 'node:stream';
import { abortAfter, change, configuration, defer, definePlugin, next, reject, secret, z } from 'postern/plugin';

const Options = z.strictObject({
  url: z
    .url({ protocol: /^http$/ })
    .default('http://127.0.0.1:11333')
    .describe('The worker of rspamd that scans.'),
  password: secret().optional().describe('Of the worker, if it wants one.'),
  timeout: z.number().min(0.1).max(60).default(10).describe('For one message. Seconds.'),
  whenAway: z.enum(['defer', 'accept']).default('defer').describe('What happens to mail while rspamd does not answer.'),
  maxBytes: z.int().min(1000).max(1_000_000_000).default(20_000_000).describe('Longer messages are not scanned.'),
});
const Answer = z.object({
  action: z.string(),
  score: z.number(),
  required_score: z.number(),
  subject: z.string().optional(),
  messages: z.object({ smtp_message: z.string().optional() }).default({}),
  symbols: z.record(z.string(), z.unknown()).default({}),
});
const maxAnswerBytes = 1_000_000;
const actions = ['no action', 'greylist', 'add header', 'rewrite subject', 'soft reject', 'reject'];
const unscanned = ['X-Spam-Flag', 'X-Spam-Status'].map(
  (name) => /** @type {const} */ ({ change: 'remove-header', name }), // anybody can write them
);

/** Asks rspamd about each message, and does what it says. */
export const rspamd = definePlugin({
  name: 'rspamd',
  options: Options,
  needs: { configuration },
  setup({ smtp, metrics, health, onClose }, { options: given, configuration }) {
    let [options, failure] = [given, ''];
    const stopping = new AbortController();
    onClose(() => stopping.abort());
    const scanned = metrics.counter('rspamd_messages_total', 'Messages, by the action of rspamd.', ['action']);
    const result = () => (options.whenAway === 'defer' ? 'deferred' : 'accepted without a scan');
    const why = () => `rspamd does not answer (${failure}). Mail is ${result()}.`;
    health.check('rspamd', () => (failure === '' ? { status: 'up' } : { status: 'degraded', why: why() }));

    smtp.on('message', { order: 'content', timeLimitMs: 70_000 }, async ({ transaction, message }) => {
      if (transaction.session.internal) return next();
      if (message.size > options.maxBytes) return change(...unscanned);
      try {
        const answer = Answer.parse(JSON.parse(await ask(transaction, message)));
        scanned.inc({ action: actions.includes(answer.action) ? answer.action : 'other' });
        failure = '';
        return verdictOf(answer);
      } catch (error) {
        scanned.inc({ action: 'none' });
        const { code, name } = Object(error);
        failure = typeof code === 'string' ? code : name;
        return options.whenAway === 'accept'
          ? change(...unscanned)
          : defer(451, '4.7.1', 'The message cannot be checked now');
      }
    });

    /** @type {(transaction: import('postern/plugin').Transaction, message: import('postern/plugin').ReceivedMessage) => Promise<string>} */
    async function ask({ id, session: { remote, hello, user }, reversePath, recipients }, message) {
      const headers = {
        'Queue-Id': id,
        IP: remote.address,
        'MTA-Name': configuration.hostname,
        From: octets(reversePath?.address ?? ''),
        Rcpt: recipients.map(({ address }) => octets(address.address)), // a field for each
        ...(hello && { Helo: octets(hello.name) }),
        ...(user && { User: octets(user.username) }),
        ...(options.password && { Password: options.password }),
      };
      const signal = abortAfter(options.timeout * 1000, stopping.signal);
      /** @type {import('node:http').IncomingMessage} */
      const response = await new Promise((resolve, reject) => {
        const url = new URL('/checkv2', options.url);
        const asked = request(url, { method: 'POST', headers, signal, agent: false }, resolve);
        pipeline(message.open(), asked, (error) => error && reject(error));
        asked.on('error', reject);
      });
      if (response.statusCode !== 200) throw Object.assign(new Error(), { code: `HTTP ${response.statusCode}` });
      let answer = '';
      for await (const chunk of response.setEncoding('utf8')) {
        answer += chunk;
        if (answer.length > maxAnswerBytes) throw new RangeError('The answer is too long.');
      }
      return answer;
    }
    return { reconfigure: (next) => void (options = next) };
  },
});

/** @param {z.output<typeof Answer>} answer */
function verdictOf({ action, score, required_score: required, symbols, subject, messages }) {
  const words = messages.smtp_message?.replaceAll(/[^ -~]+/g, ' ').slice(0, 200);
  if (action === 'reject') return reject(550, '5.7.1', words || 'This message looks like spam');
  if (action === 'soft reject' || action === 'greylist') return defer(451, '4.7.1', words || 'Please try again later');
  const isSpam = action === 'add header' || action === 'rewrite subject';
  const tests = Object.keys(symbols)
    .slice(0, 100)
    .join(',')
    .replaceAll(/[^\w,]/g, '');
  const status = `${isSpam ? 'Yes' : 'No'}, score=${score.toFixed(2)} required=${required.toFixed(2)} tests=${tests}`;
  const fields = [['X-Spam-Status', status], ...(isSpam ? [['X-Spam-Flag', 'YES']] : [])];
  const isRenamed = action === 'rewrite subject' && subject !== undefined;
  if (isRenamed) fields.push(['Subject', subject.replaceAll(/\p{Cc}+/gu, ' ')]);
  return change(
    ...unscanned,
    ...(isRenamed ? [/** @type {const} */ ({ change: 'remove-header', name: 'Subject' })] : []),
    ...fields.map(([name = '', value = '']) => /** @type {const} */ ({ change: 'add-header', name, value })),
  );
}

/** As a field of HTTP takes it. */
const octets = (/** @type {string} */ text) => Buffer.from(text.replaceAll(/\p{Cc}/gu, '?')).toString('latin1');
