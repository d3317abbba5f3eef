import type { Part, Structure } from './structure.js';

/** Header field that names an attachment of a draft, so that it keeps its id when parts come and go. */
export const attachmentField = 'X-Postern-Attachment';

/**
 * What a reader calls an attachment: a leaf that is neither text to read nor an image that the HTML shows. A forwarded
 * message counts as one, and what is inside of it does not.
 */
export function isAttachment(part: Part): boolean {
  if (part.disposition === 'attachment') return true;
  if (part.contentType.startsWith('multipart/')) return false;
  if (part.contentType === 'message/rfc822' || part.contentType === 'message/global') return true;
  if (part.contentType.startsWith('text/')) return part.filename !== undefined && part.contentType !== 'text/plain';
  return !(part.cid !== undefined && part.contentType.startsWith('image/'));
}

/** The leaves and forwarded messages of the message itself, in order, without what lies inside of forwarded messages. */
export function ownParts(structure: Structure): readonly Part[] {
  const own: Part[] = [];
  const visit = [structure.root];
  for (let part = visit.pop(); part !== undefined; part = visit.pop()) {
    if (part.boundary === undefined) own.push(part);
    else visit.push(...part.children.toReversed());
  }
  return own;
}
