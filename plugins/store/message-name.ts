import { problem } from '../../core/problem.js';

/** What the name of a Maildir file says. */
export interface MessageName {
  /** The unique name without flags: the message's id, the same wherever it is moved inside of its folder. */
  readonly id: string;
  /** Letters behind `:2,`. */
  readonly flags: string;
  /** Bytes, from `S=`; undefined when the name does not say. */
  readonly size: number | undefined;
  /** Milliseconds since 1970, from the time in front of the name; undefined when it does not begin with one. */
  readonly receivedAt: number | undefined;
}

const time = /^(\d{1,11})(?:\.(?:[^.,]*?M(\d{1,6}))?|$|[^\d])/;

export function readMessageName(file: string): MessageName {
  const colon = file.indexOf(':');
  const id = colon < 0 ? file : file.slice(0, colon);
  return {
    id,
    flags: colon >= 0 && file.startsWith('2,', colon + 1) ? file.slice(colon + 3) : '',
    size: sizeOf(id),
    receivedAt: receivedAt(id),
  };
}

function sizeOf(id: string): number | undefined {
  const start = id.indexOf(',S=');
  if (start < 0) return undefined;
  const comma = id.indexOf(',', start + 3);
  const digits = comma < 0 ? id.slice(start + 3) : id.slice(start + 3, comma);
  const size = Number(digits);
  return digits !== '' && digits.length < 16 && Number.isInteger(size) && size >= 0 ? size : undefined;
}

function receivedAt(id: string): number | undefined {
  const match = time.exec(id);
  if (match === null) return undefined;
  return Number(match[1]) * 1000 + Number(match[2] ?? 0) / 1000;
}

/** Controls, characters that cannot be seen or turn the direction of writing, halves of surrogate pairs, separators. */
const refused = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029/\\:]/u;

/**
 * Reads a message's id as it stands in a URL or body. It is only ever compared with names that a folder has.
 * @throws Problem `bad-request`
 */
export function parseMessageId(text: string): string {
  if (text === '' || text.startsWith('.') || refused.test(text) || Buffer.byteLength(text) > 255) {
    throw problem('bad-request', {
      detail: 'That is no message id: it is the unique name of the file, without flags.',
    });
  }
  return text;
}
