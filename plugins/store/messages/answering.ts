import { addressesIn } from '../../../core/mime/address-list.js';
import { scanHeader } from '../../../core/mime/header.js';
import { isProblem, problem } from '../../../core/problem.js';
import { ownerOf, partsOfMessage, type PartSource, readRange } from '../drafts/draft-composition.js';
import type { DraftContent } from '../drafts/draft-content.js';
import type { Draft } from '../drafts/draft.js';
import type { Drafts } from '../drafts/drafts.js';
import { type AnswerKind, answerFields } from '../http/message-answer.js';
import { type MessageFile, readHead } from '../maildir/message-file.js';
import type { MessagePlace, StoreReader } from './store-reader.js';

export interface AnsweringInput {
  readonly reader: StoreReader;
  readonly drafts: Drafts;
}

const headBytes = 64 * 1024;

/**
 * Begins the draft of a reply, or of a message that is forwarded with its attachments.
 * @throws Problem `not-found`, `conflict` when the message cannot be parsed, `mailbox-full`, `too-large`
 */
export async function beginAnswer(
  { reader, drafts }: AnsweringInput,
  place: MessagePlace,
  kind: AnswerKind,
): Promise<Draft> {
  const file = await reader.open(place);
  try {
    const original = await contentOf(reader, file);
    const header = scanHeader(await readHead(file, headBytes));
    const replyTo = [...addressesIn(header.all('reply-to').slice(0, 20))];
    const fields = await answerFields(kind, { original, replyTo, owner: ownerOf(place.mailbox) });
    const parts = kind === 'forward' ? forwardedParts(file, original) : [];
    return await drafts.create(place.mailbox, { kind: 'fields', fields, parts });
  } finally {
    await file.handle.close();
  }
}

async function contentOf(reader: StoreReader, file: MessageFile): Promise<DraftContent> {
  try {
    return await reader.draft(file);
  } catch (error) {
    if (!isProblem(error) || error.problem !== 'conflict') throw error;
    throw problem('conflict', 'This message could not be parsed, so it can be downloaded, but not answered here.');
  }
}

/** Its attachments; a message that is too large or too deep to be taken to pieces goes whole. */
function forwardedParts(file: MessageFile, original: DraftContent): readonly PartSource[] {
  return original.truncated ? [wholeMessage(file)] : partsOfMessage(file, original.attachments);
}

function wholeMessage({ handle, size }: MessageFile): PartSource {
  const header =
    'Content-Type: message/rfc822\r\nContent-Disposition: attachment; filename="forwarded.eml"\r\nContent-Transfer-Encoding: 8bit\r\n\r\n';
  return {
    async *open() {
      yield Buffer.from(header);
      yield* readRange(handle, 0, size);
    },
  };
}
