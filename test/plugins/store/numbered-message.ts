/** The message of that number: every tenth is too large to stay in memory. */
export function numberedMessage(word: string, number: number): Buffer {
  const lines = number % 10 === 0 ? 4000 : 5 + (number % 50);
  return Buffer.from(`Subject: ${word} ${number}\r\n\r\n${`line of ${word} ${number}\r\n`.repeat(lines)}`);
}
