/** What a message says; everything may be left out. */
export interface MessageParts {
  readonly from?: string;
  readonly to?: string | readonly string[];
  readonly subject?: string;
  /** The text; any line ends. */
  readonly text?: string;
  /** Further header fields, in this order. A name may have several values; the names above are replaced by what stands here. */
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
}

/**
 * A message with CRLF line ends, to be given as `eml`. It is the same for the same parts, and ASCII: non-ASCII text is for
 * those who encode it themselves.
 */
export function message(parts: MessageParts = {}): string {
  const {
    from = 'anna@example.com',
    to = 'bob@example.org',
    subject = 'A test',
    text = 'Hello!\n',
    headers = {},
  } = parts;
  const own = Object.keys(headers).map((name) => name.toLowerCase());
  const fields = {
    From: from,
    To: [to].flat().join(', '),
    Subject: subject,
    Date: 'Tue, 01 Jan 2030 12:00:00 +0000',
    'Message-ID': '<test@example.com>',
  };
  const usual = Object.entries(fields).filter(([name]) => !own.includes(name.toLowerCase()));
  const given = Object.entries(headers).flatMap(([name, values]) => [values].flat().map((value) => [name, value]));
  const head = [...usual, ...given].map(([name, value]) => `${name}: ${value}\n`).join('');
  return withCrlf(`${head}\n${text}`);
}

export const withCrlf = (text: string): string => text.replace(/\r\n|\r|\n/g, '\r\n');
