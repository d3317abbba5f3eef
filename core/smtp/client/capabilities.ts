import type { Reply } from '../protocol/reply.js';

/** What the server offers (RFC 5321 §4.1.1.1). */
export interface Capabilities {
  readonly pipelining: boolean;
  readonly eightBitMime: boolean;
  readonly smtputf8: boolean;
  readonly dsn: boolean;
  readonly startTls: boolean;
  readonly enhancedStatusCodes: boolean;
  /** Undefined: SIZE is not offered; 0: offered without a limit (RFC 1870). */
  readonly size: number | undefined;
  /** Upper case names of mechanisms. */
  readonly auth: readonly string[];
  /** Upper case names of attributes; empty where XCLIENT is not offered. */
  readonly xclient: readonly string[];
  /** Every keyword, upper case, with what follows it. */
  readonly keywords: ReadonlyMap<string, string>;
}

/** Of the reply to EHLO or LHLO; its first line is a greeting. */
export function readCapabilities(reply: Reply): Capabilities {
  const keywords = new Map<string, string>();
  for (const line of reply.lines.slice(1)) {
    const [, keyword = '', rest = ''] = /^\s*([A-Za-z0-9][A-Za-z0-9-]*)[ =]?(.*)$/.exec(line) ?? [];
    if (keyword === '') continue;
    const key = keyword.toUpperCase();
    const before = keywords.get(key);
    // AUTH is given twice by servers that know the old form AUTH=LOGIN.
    keywords.set(key, before === undefined ? rest.trim() : `${before} ${rest.trim()}`);
  }
  return describe(keywords);
}

/** Of a server that was greeted with HELO. */
export const noCapabilities: Capabilities = describe(new Map());

function describe(keywords: ReadonlyMap<string, string>): Capabilities {
  const words = (key: string): readonly string[] =>
    (keywords.get(key) ?? '')
      .toUpperCase()
      .split(/\s+/)
      .filter((word) => word !== '');
  const size = keywords.get('SIZE');
  return Object.freeze({
    pipelining: keywords.has('PIPELINING'),
    eightBitMime: keywords.has('8BITMIME'),
    smtputf8: keywords.has('SMTPUTF8'),
    dsn: keywords.has('DSN'),
    startTls: keywords.has('STARTTLS'),
    enhancedStatusCodes: keywords.has('ENHANCEDSTATUSCODES'),
    size: size === undefined ? undefined : /^\d{1,15}$/.test(size) ? Number(size) : 0,
    auth: words('AUTH'),
    xclient: words('XCLIENT'),
    keywords,
  });
}
