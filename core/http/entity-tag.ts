/** `"etag"` for bytes and JSON. Never contains a quote. */
export const strongTag = (opaque: string): string => `"${opaque.replace(/[^\x21\x23-\x7e]/g, '_')}"`;

/**
 * Whether a field such as `If-Match` or `If-None-Match` names the tag (RFC 9110 §13.1). `*` names every one. Weakness is
 * ignored on both sides: our tags stand for the state of a resource, and compression makes them weak on the way.
 */
export function namesTag(field: string | undefined, opaque: string): boolean {
  if (field === undefined) return false;
  if (field.trim() === '*') return true;
  const wanted = strongTag(opaque);
  return field.split(',').some((tag) => tag.trim().replace(/^W\//, '') === wanted);
}
