import type { RecordedReply } from '../../../core/contracts/queue-entry.js';
import type { QueuedEntry } from './queued-entry.js';

/** Texts that come again and again are looked at once; of more than so many nobody keeps the answer. */
const mostRemembered = 5000;

/** Whether a text is a part of an entry, without regard to case. Every entry is asked, so that most are answered by one look. */
export function mentions(q: string): (entry: QueuedEntry) => boolean {
  const wanted = q.toLowerCase();
  const asJson = JSON.stringify(wanted).slice(1, -1);
  const inText = holding(wanted);
  const inEnvelope = holding(asJson);
  const inShared = remembering(inText);
  const mayBeUid = /^[0-9a-z_-]+$/.test(wanted);
  // Codes are looked for only by those who look for digits: putting a line together for every entry takes its time.
  const inReply = /^\d/.test(wanted) ? anywhereInReply(inText) : ({ text }: RecordedReply) => inShared(text);
  return (entry) =>
    (mayBeUid && inText(entry.uid)) ||
    (entry.sender !== null && inShared(entry.sender)) ||
    entry.recipients.some(({ address, reply }) => inText(address) || (reply !== null && inReply(reply))) ||
    // Subject and Message-ID stand in the envelope as it is kept: few have to be taken apart.
    (inEnvelope(entry.envelope) && inHeader(entry, inText));
}

/** What has no case is looked for in the text as it is; only where that is found is the text folded. */
function holding(wanted: string): (text: string) => boolean {
  const sure = longestCaseless(wanted);
  if (sure === wanted) return (text) => text.includes(wanted);
  if (sure.length < 2) return (text) => text.toLowerCase().includes(wanted);
  return (text) => text.includes(sure) && text.toLowerCase().includes(wanted);
}

function longestCaseless(text: string): string {
  const runs = text.match(/[\x20-\x40\x5b-\x60\x7b-\x7e]+/g) ?? [];
  return runs.reduce((longest, run) => (run.length > longest.length ? run : longest), '');
}

function remembering(test: (text: string) => boolean): (text: string) => boolean {
  const known = new Map<string, boolean>();
  return (text) => {
    const before = known.get(text);
    if (before !== undefined) return before;
    const answer = test(text);
    if (known.size < mostRemembered) known.set(text, answer);
    return answer;
  };
}

function anywhereInReply(has: (text: string) => boolean): (reply: RecordedReply) => boolean {
  return ({ code, status, text }) => has(`${code} ${status} ${text}`);
}

function inHeader(entry: QueuedEntry, has: (text: string) => boolean): boolean {
  const { subject, internetMessageId } = entry.accepted;
  return has(subject) || (internetMessageId !== null && has(internetMessageId));
}
