/** Neighbouring lines of a plain text that are quoted equally deep. */
export interface TextBlock {
  /** 0 for what the sender wrote; at most 5. */
  readonly depth: number;
  readonly text: string;
}

const maxDepth = 5;
const maxBlocks = 5000;

/** Cuts a plain text where quoting (`>` in front of lines) begins, ends or changes; the marks are taken off. Linear. */
export function textBlocks(text: string): readonly TextBlock[] {
  const blocks: { depth: number; lines: string[] }[] = [];
  for (const line of text.split('\n')) {
    const { depth, rest } = unquoted(line);
    const last = blocks.at(-1);
    if (last !== undefined && (last.depth === depth || blocks.length >= maxBlocks)) last.lines.push(rest);
    else blocks.push({ depth, lines: [rest] });
  }
  return blocks.map(({ depth, lines }) => ({ depth, text: lines.join('\n') }));
}

function unquoted(line: string): { readonly depth: number; readonly rest: string } {
  let depth = 0;
  let at = 0;
  while (line[at] === '>' && depth < maxDepth) {
    depth++;
    at++;
    if (line[at] === ' ') at++;
  }
  return { depth, rest: line.slice(at) };
}
