/** Bytes of a header that are looked through for it; nearly all are shorter. */
const LOOKED_THROUGH = 65_536;
/** RFC 5322 §3.6.4 as people write it: in brackets, on the line of the name or the next. */
const pattern = /(?:^|\n)message-id[ \t]*:[ \t]*(?:\r?\n[ \t]+)?(<[^\s<>]{1,250}>)/i;

/**
 * The Message-ID of a header block, with its brackets; undefined when there is none that can be searched for. A look for
 * this one field costs less than a scan of all.
 *
 * @param head from the first header field; a body behind it is not looked at
 */
export function messageIdOf(head: Buffer): string | undefined {
  const text = head.toString('latin1', 0, LOOKED_THROUGH);
  const found = pattern.exec(text);
  if (found?.[1] === undefined) return undefined;
  const end = text.search(/\r?\n\r?\n/);
  if (end !== -1 && found.index > end) return undefined;
  return Buffer.from(found[1], 'latin1').toString('utf8');
}
