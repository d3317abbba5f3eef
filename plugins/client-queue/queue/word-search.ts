import type { RecordedReply } from '../../../core/contracts/queue-entry.js';
import { headerTexts } from './envelope.js';
import type { QueuedEntry } from './queued-entry.js';

type Holds = (text: string) => boolean;

/** Texts that come again and again are looked at once; of more than so many nobody keeps the answer. */
const maxRemembered = 5000;

/** Whether a text is a part of an entry, without regard to case. Every entry is asked, so that most are answered by few looks. */
export function mentions(q: string): (entry: QueuedEntry) => boolean {
  const inText = holding(q);
  const inHeader = holding(JSON.stringify(q).slice(1, -1));
  const inShared = remembering(inText);
  const mayBeUid = /^[0-9a-z_-]+$/i.test(q);
  // Codes are looked for only by those who look for digits: putting a line together for every entry takes its time.
  const inReply = /^\d/.test(q) ? anywhereInReply(inText) : ({ text }: RecordedReply) => inShared(text);
  return (entry) => {
    if (mayBeUid && inText(entry.uid)) return true;
    if (entry.sender !== null && inShared(entry.sender)) return true;
    for (const { address, reply } of entry.recipients) {
      if (inText(address) || (reply !== null && inReply(reply))) return true;
    }
    return inHeader(entry.envelope) && headerTexts(entry).some(inHeader);
  };
}

/** A literal pattern: it folds case without making another text of each, and takes linear time. */
function holding(wanted: string): Holds {
  const pattern = new RegExp(wanted.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, String.raw`\$&`), 'i');
  return (text) => pattern.test(text);
}

function remembering(test: Holds): Holds {
  const known = new Map<string, boolean>();
  return (text) => {
    const before = known.get(text);
    if (before !== undefined) return before;
    const answer = test(text);
    if (known.size < maxRemembered) known.set(text, answer);
    return answer;
  };
}

function anywhereInReply(has: Holds): (reply: RecordedReply) => boolean {
  return ({ code, status, text }) => has(`${code} ${status} ${text}`);
}
