import { problem } from '../../../core/problem.js';

/** Parsed name of a Maildir file. */
export interface MessageName {
  /** The unique name without flags: the message's id, which stays the same within its folder. */
  readonly id: string;
  /** Letters after `:2,`. */
  readonly flags: string;
  /** Bytes, from `S=`; undefined when missing. */
  readonly size: number | undefined;
  /**
   * Milliseconds since 1970, from the time in a name of Postern; undefined for a name of another program: its time may
   * be that of a migration, while the mtime of the file is the received date (INTERNALDATE of IMAP).
   */
  readonly receivedAt: number | undefined;
}

const dot = 46;
const comma = 44;
const capitalM = 77;
const maxTimeDigits = 11;
const maxMicrosDigits = 6;
const maxSizeDigits = 15;
/** Names of `UniqueNames`, including those of drafts. */
const ownName = /^\d{1,11}\.M\d+P\d+Q\d+R[0-9a-f]{32}[.D]/;

export function readMessageName(file: string): MessageName {
  const scan = new NameScan();
  scan.read(file);
  const { idLength, flagsAt, size, receivedAt } = scan;
  return {
    id: file.slice(0, idLength),
    flags: flagsAt < 0 ? '' : file.slice(flagsAt),
    size: Number.isNaN(size) ? undefined : size,
    receivedAt: Number.isNaN(receivedAt) ? undefined : receivedAt,
  };
}

/** The size fields of a unique name as written: `,S=1,W=1`. */
export function sizesIn(id: string): string {
  return (id.match(/,[SW]=\d{1,15}(?=,|$)/g) ?? []).join('');
}

/** Reads one name after the other without allocating: folders have many. */
export class NameScan {
  /** Length of the unique name in characters. */
  idLength = 0;
  /** Start of the letters after `:2,`; negative when there are none. */
  flagsAt = -1;
  /** Bytes; NaN when missing. */
  size = NaN;
  /** Milliseconds since 1970; NaN for a name of another program. */
  receivedAt = NaN;

  read(file: string): void {
    const colon = file.indexOf(':');
    this.idLength = colon < 0 ? file.length : colon;
    this.flagsAt = colon >= 0 && file.startsWith('2,', colon + 1) ? colon + 3 : -1;
    this.size = sizeIn(file, this.idLength);
    this.receivedAt = ownName.test(file) ? timeIn(file, this.idLength) : NaN;
  }
}

function digitAt(text: string, at: number): number {
  const digit = text.charCodeAt(at) - 48;
  return digit >= 0 && digit <= 9 ? digit : -1;
}

function sizeIn(file: string, end: number): number {
  const start = file.indexOf(',S=') + 3;
  if (start < 3 || start >= end) return NaN;
  let size = 0;
  let at = start;
  for (let digit = digitAt(file, at); digit >= 0; digit = digitAt(file, ++at)) size = size * 10 + digit;
  const digits = at - start;
  const ends = at === end || file.charCodeAt(at) === comma;
  return ends && digits > 0 && digits <= maxSizeDigits ? size : NaN;
}

/** `<seconds>`, then after a dot optionally `M<microseconds>` among others. */
function timeIn(file: string, end: number): number {
  let seconds = 0;
  let at = 0;
  for (let digit = digitAt(file, at); digit >= 0; digit = digitAt(file, ++at)) seconds = seconds * 10 + digit;
  if (at === 0 || at > maxTimeDigits) return NaN;
  return seconds * 1000 + (file.charCodeAt(at) === dot ? microsecondsIn(file, at + 1, end) / 1000 : 0);
}

function microsecondsIn(file: string, start: number, end: number): number {
  for (let at = start; at < end; at++) {
    const code = file.charCodeAt(at);
    if (code === dot || code === comma) return 0;
    if (code !== capitalM || digitAt(file, at + 1) < 0) continue;
    let micros = 0;
    for (let n = 1; n <= maxMicrosDigits; n++) {
      const digit = digitAt(file, at + n);
      if (digit < 0) break;
      micros = micros * 10 + digit;
    }
    return micros;
  }
  return 0;
}

/** Controls, invisible and bidirectional characters, unpaired surrogates, separators. */
const forbiddenInId = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029/\\:]/u;

/**
 * Validates a message id from a URL or body. It is only compared with the names in a folder.
 * @throws Problem `bad-request`
 */
export function parseMessageId(text: string): string {
  if (text === '' || text.startsWith('.') || forbiddenInId.test(text) || Buffer.byteLength(text) > 255) {
    throw problem('bad-request', {
      detail: 'That is no message id: it is the unique name of the file, without flags.',
    });
  }
  return text;
}
