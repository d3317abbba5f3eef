/** Where a text has the words: start and end in UTF-16 units, in order and without overlaps. */
export type Marks = readonly (readonly [start: number, end: number])[];

/**
 * @param text in normalization form C
 * @param words the same, in lower case
 */
export function marksOf(text: string, words: readonly string[]): Marks {
  const { lower, origins } = lowered(text);
  const found: [number, number][] = [];
  for (const word of words) {
    for (let at = lower.indexOf(word); at >= 0; at = lower.indexOf(word, at + word.length)) {
      const last = origins[at + word.length - 1];
      const start = origins[at];
      if (start !== undefined && last !== undefined) found.push([start, last + lengthAt(text, last)]);
    }
  }
  return merged(found);
}

/** Lower case, and for each of its units the place of its character in the text: `İ` becomes two characters. */
function lowered(text: string): { readonly lower: string; readonly origins: readonly number[] } {
  const origins: number[] = [];
  let lower = '';
  let at = 0;
  for (const character of text) {
    const small = character.toLowerCase();
    for (let unit = 0; unit < small.length; unit++) origins.push(at);
    lower += small;
    at += character.length;
  }
  return { lower, origins };
}

function lengthAt(text: string, at: number): number {
  return (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
}

function merged(marks: readonly (readonly [number, number])[]): Marks {
  const result: [number, number][] = [];
  for (const [start, end] of marks.toSorted((a, b) => a[0] - b[0])) {
    const last = result.at(-1);
    if (last !== undefined && start <= last[1]) last[1] = Math.max(last[1], end);
    else result.push([start, end]);
  }
  return result;
}
