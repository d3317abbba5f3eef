const entities: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', nbsp: ' ' };

/** What a person reads on a page that this server rendered: no tags, no scripts, blanks joined. */
export function pageText(html: string): string {
  return html
    .replace(/<!--[\s\S]*?-->|<(script|style|template|svg)\b[\s\S]*?<\/\1\s*>/gi, ' ')
    .replace(/<[^>]*>/g, ' ')
    .replace(/&(?:(\w+)|#(\d{1,7}));/g, (written, name: string | undefined, code: string | undefined) =>
      name === undefined ? characterOf(Number(code)) : (entities[name] ?? written),
    )
    .replace(/\s+/g, ' ')
    .trim();
}

const characterOf = (code: number): string => (code <= 0x10ffff ? String.fromCodePoint(code) : '\ufffd');
