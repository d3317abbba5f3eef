import { createHash } from 'node:crypto';
import { uniqueIdPattern } from '../../../core/disk/id.js';
import { problem } from '../../../core/problem.js';

/** What the unique name of a draft's file says of the draft. */
export interface DraftMark {
  readonly draftId: string;
  /** Rises with each version; 0 for a file that another program wrote. */
  readonly revision: number;
}

const marked = /^\d+\.M\d+P\d+Q\d+R[0-9a-f]{32}D([0-9a-hjkmnp-tv-z]{20})V(\d{1,9})\./;
const chance = /R[0-9a-f]{32}(?=\.)/;
/** As for every unique name: what leaves room for flags below NAME_MAX. */
const longestName = 200;
const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

/** Puts the mark of a draft into a unique name: `…R<random>D<draftId>V<revision>.<host>,S=…`. */
export function markName(name: string, { draftId, revision }: DraftMark): string {
  const whole = name.replace(chance, (found) => `${found}D${draftId}V${revision}`);
  const surplus = Math.max(0, whole.length - longestName);
  const sizes = whole.indexOf(',');
  return surplus === 0 ? whole : whole.slice(0, sizes - surplus) + whole.slice(sizes);
}

/**
 * The draft that a file is a version of, by its unique name. One that a mail client wrote has an id too, worked out from its
 * name: it stays the same when the draft is saved here, for then it stands in the name.
 */
export function markOf(id: string): DraftMark {
  const match = marked.exec(id);
  if (match !== null) return { draftId: match[1] ?? '', revision: Number(match[2]) };
  const digest = createHash('sha256').update(baseOf(id)).digest();
  const draftId = Array.from(digest.subarray(0, 20), (byte) => alphabet.charAt(byte & 31)).join('');
  return { draftId, revision: 0 };
}

/** Changes with each version, and with nothing else. */
export function tagOf(id: string): string {
  return createHash('sha256').update(baseOf(id)).digest('hex').slice(0, 24);
}

/** @throws Problem `not-found`: what can be no id is no draft */
export function parseDraftId(text: string): string {
  if (!uniqueIdPattern.test(text)) throw problem('not-found', 'There is no draft with that id.');
  return text;
}

/** Without the sizes, which another program may add. */
function baseOf(id: string): string {
  return id.replace(/,.*$/s, '');
}
