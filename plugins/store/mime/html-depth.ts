/** Elements that never hold others. */
const empty = new Set(
  'area base basefont bgsound br col command embed frame hr image img input keygen link meta param source track wbr'.split(
    ' ',
  ),
);
/** Elements whose end is left out by many, and that the next one of them ends. */
const endsBefore: Readonly<Record<string, readonly string[]>> = {
  p: ['p'],
  li: ['li'],
  dt: ['dt', 'dd'],
  dd: ['dt', 'dd'],
  td: ['td', 'th'],
  th: ['td', 'th'],
  tr: ['td', 'th', 'tr'],
  option: ['option'],
};

/**
 * The HTML up to where more than `limit` elements are open at once. The sanitiser takes time for each open element at each
 * tag: some hundred kilobytes of `<b>` would keep it busy for twenty seconds.
 */
export function cutDeepHtml(html: string, limit: number): string {
  const open: string[] = [];
  for (const match of html.matchAll(/<(\/?)([a-z][^\s/>]{0,30})/gi)) {
    const name = (match[2] ?? '').toLowerCase();
    if (match[1] === '/') {
      const at = open.lastIndexOf(name);
      if (at >= 0) open.length = at;
    } else if (!empty.has(name)) {
      const ended = Object.hasOwn(endsBefore, name) ? (endsBefore[name] ?? []) : [];
      while (ended.includes(open.at(-1) ?? '')) open.pop();
      if (open.length >= limit) return html.slice(0, match.index);
      open.push(name);
    }
  }
  return html;
}
