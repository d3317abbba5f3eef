/** A count with its noun: `1 message`, `2 messages`; the two may say more than a noun, `1 key waits`, `2 keys wait`. */
export function pluralize(count: number, noun: string, plural = `${noun}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? noun : plural}`;
}

/** `1 second`, `1200 seconds`: with digits alone, for whoever reads how long to wait is often a program. */
export function secondsText(count: number): string {
  return `${count} ${count === 1 ? 'second' : 'seconds'}`;
}

/** One line, and nothing that moves a cursor or turns the direction of text. */
export const printable = (text: string): string => text.replace(/[\p{Cc}\u2028-\u202e\u2066-\u2069]/gu, '\ufffd');
