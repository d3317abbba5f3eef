/** A count with its noun: `1 message`, `2 messages`; the two may say more than a noun, `1 key waits`, `2 keys wait`. */
export function counted(count: number, noun: string, plural = `${noun}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? noun : plural}`;
}
