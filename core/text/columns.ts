/*
 * Text for terminals.
 */

/** Width of a terminal that text is made for. */
export const columns = 80;

/** Wraps between words; a longer word, such as a path, gets its own line. */
export function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line];
}

/** The parts of a line such as `postern user add NAME   add a mail user`. */
export function usageRow(line: string): { readonly synopsis: string; readonly summary: string } {
  const [synopsis = '', ...summary] = line.replace(/^postern /, '').split(/ {2,}/);
  return { synopsis, summary: summary.join(' ') };
}

/** How commands are called: each with what it does below. */
export function usageText(lines: readonly string[]): string {
  const rows = lines
    .map(usageRow)
    .flatMap(({ synopsis, summary }) => [
      `  postern ${synopsis}`,
      ...(summary === '' ? [] : wrapped(summary, columns - 6).map((line) => `      ${line}`)),
    ]);
  return ['Usage:', ...rows].join('\n');
}
