/** One line, and nothing that moves a cursor or turns the direction of text. */
export const printable = (text: string): string => text.replace(/[\p{Cc}\u2028-\u202e\u2066-\u2069]/gu, '\ufffd');
