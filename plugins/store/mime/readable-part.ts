import { isAttachment, type Part, type Structure } from '../../../core/mime/structure.js';

/** The parts that make up what a person reads. */
export interface ReadableParts {
  readonly text: readonly Part[];
  readonly html: readonly Part[];
}

/** Most parts of one kind that are shown one after the other. */
const maxShown = 20;

/**
 * Picks the text and the HTML of a message (RFC 2046 §5.1.4): of alternatives each kind gives one, the best (last) first;
 * of anything else all inline texts, in order.
 */
export function readableParts(structure: Structure): ReadableParts {
  const text: Part[] = [];
  const html: Part[] = [];
  const visit = [structure.root];
  for (let part = visit.pop(); part !== undefined; part = visit.pop()) {
    if (part.boundary !== undefined) visit.push(...chosen(part).toReversed());
    else if (isAttachment(part)) continue;
    else if (part.contentType === 'text/html') html.push(part);
    else if (part.contentType.startsWith('text/')) text.push(part);
  }
  return { text: text.slice(0, maxShown), html: html.slice(0, maxShown) };
}

/** Of alternatives, the last plain text and the last of everything else. */
function chosen(part: Part): readonly Part[] {
  if (part.contentType !== 'multipart/alternative') return part.children;
  const plain = part.children.findLast((child) => child.contentType === 'text/plain');
  const rich = part.children.findLast((child) => child.contentType !== 'text/plain' && !isAttachment(child));
  return [plain, rich].filter((child) => child !== undefined);
}
