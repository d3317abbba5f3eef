import { reply, type Reply } from '../protocol/reply.js';

/** A reply with its bytes. */
export interface WireReply extends Reply {
  readonly bytes: Buffer;
}

/** RFC 5321 §4.5.3.1.5: a reply line has 512 bytes with its CRLF. */
const longestText = 498;

/** Text of peers and hooks must not break out of its line, and a reply is ASCII (RFC 5321 §2.3.1). */
const unprintable = /[^ -~]/gu;

/** The bytes of a reply (RFC 5321 §4.2.1); its enhanced status code stands in each line (RFC 2034 §4). */
export function encodeReply({ code, status, lines }: Reply): Buffer {
  const texts = lines.length === 0 ? [''] : lines;
  const prefix = status === null ? '' : `${status} `;
  const last = texts.length - 1;
  return Buffer.from(
    texts.map((text, index) => `${code}${index === last ? ' ' : '-'}${prefix}${printable(text)}\r\n`).join(''),
  );
}

function printable(text: string): string {
  const clean = text.replace(unprintable, '?');
  return clean.length > longestText ? clean.slice(0, longestText) : clean;
}

/** A reply that is encoded once and sent often. */
export function wireReply(code: number, status: string | null, ...lines: readonly string[]): WireReply {
  const made = reply(code, status, ...lines);
  return Object.freeze({ ...made, bytes: encodeReply(made) });
}

/** The same for words that change only with the settings, such as a greeting: nothing of a peer may be in them. */
export function settledReply(code: number, ...lines: readonly string[]): WireReply {
  const key = `${code} ${lines.join('\n')}`;
  const known = settled.get(key);
  if (known !== undefined) return known;
  if (settled.size >= mostSettled) settled.clear();
  const made = wireReply(code, null, ...lines);
  settled.set(key, made);
  return made;
}

const settled = new Map<string, WireReply>();
const mostSettled = 100;

export function bytesOf(answer: Reply | WireReply): Buffer {
  return 'bytes' in answer ? answer.bytes : encodeReply(answer);
}
