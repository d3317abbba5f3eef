import { Readable } from 'node:stream';
import { abortAfter, z } from 'postern/plugin';
import { bounded, plain } from './answers.js';

/** @typedef {import('./answers.js').Finding} Finding */
export const spamFields = ['X-Spam-Flag', 'X-Spam-Score'];
/** What rspamd says (of it, what is used here). */
const Answer = z.object({
  action: z.string(),
  score: z.number(),
  required_score: z.number(),
  messages: z.object({ smtp_message: z.string().optional() }).default({}),
});

/** https://docs.rspamd.com/developers/protocol: the message is the body, its envelope the header. */
export async function askRspamd(
  /** @type {any} */ transaction,
  /** @type {any} */ message,
  /** @type {any} */ options,
) {
  const { session, reversePath, recipients, id } = transaction;
  const headers = new Headers({ IP: session.remote.address, Helo: session.hello?.name ?? '', 'Queue-Id': id });
  headers.set('From', reversePath?.address ?? '');
  for (const { address } of recipients) headers.append('Rcpt', address.address ?? address);
  if (options.rspamdPassword) headers.set('Password', options.rspamdPassword);
  const answer = await fetch(new URL('/checkv2', options.rspamd), {
    method: 'POST',
    headers,
    body: /** @type {any} */ (Readable.toWeb(message.open())),
    duplex: 'half',
    redirect: 'error',
    signal: abortAfter(options.seconds * 1000),
  });
  if (!answer.ok) throw new Error(`rspamd answers ${answer.status}`);
  const { action, score, required_score, messages } = Answer.parse(JSON.parse(await bounded(answer.body)));
  const isLater = action === 'greylist' || action === 'soft reject';
  const why = plain(messages.smtp_message ?? (isLater ? 'Try again later' : 'This is taken for spam'));
  if (action === 'reject') return /** @type {Finding} */ ({ what: 'refuse', why });
  if (isLater) return /** @type {Finding} */ ({ what: 'later', why });
  const isSpam = action === 'add header' || action === 'rewrite subject';
  const values = [isSpam ? 'YES' : 'NO', `${score.toFixed(2)} / ${required_score.toFixed(2)}`];
  const marks = spamFields.map(
    (name, at) => /** @type {const} */ ({ change: 'add-header', name, value: values[at] ?? '' }),
  );
  return /** @type {Finding} */ ({ what: 'fine', why: '', marks });
}
