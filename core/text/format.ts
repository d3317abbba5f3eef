/** A count with its noun: `1 message`, `2 messages`. May include the verb: `1 key waits`, `2 keys wait`. */
export function pluralize(count: number, noun: string, plural = `${noun}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? noun : plural}`;
}

/** `1 second`, `1200 seconds`, without digit grouping, since programs read it too. */
export function secondsText(count: number): string {
  return `${count} ${count === 1 ? 'second' : 'seconds'}`;
}

/** Replaces line ends, control characters and bidi controls. */
export const printable = (text: string): string => text.replace(/[\p{Cc}\u2028-\u202e\u2066-\u2069]/gu, '\ufffd');
