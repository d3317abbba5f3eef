import { decodeWords } from './encoded-words.js';

/** A mailbox for display. `address` is what was written, and need not be one that mail can be sent to. */
export interface DisplayAddress {
  readonly name: string;
  readonly address: string;
}

/** Maximum number of mailboxes read from the fields of one name. */
export const maxAddresses = 10_000;
const maxTextLength = 2000;
/** An obsolete source route before the address, `@one.example,@two.example:` (RFC 5322 §4.4). */
const sourceRoute = /^@(?:\[[^\]]*\]|[^[:"])*:(?=.*@)/s;

/**
 * The mailboxes of a `From`, `To`, … field (RFC 5322 §3.4) for display, obsolete forms (§4.4) included. Groups yield
 * their members at any depth; a comment names a bare address, as in `user@example.com (Name)`. A quoted local part
 * keeps its quotes. Malformed input yields what is readable. Linear, never throws.
 */
export function parseAddressList(text: string): readonly DisplayAddress[] {
  return [...addressesIn([text])];
}

/** The mailboxes of several fields in order. Yields to the event loop between fields. */
export function* addressesIn(fields: Iterable<string>): Generator<DisplayAddress> {
  let count = 0;
  for (const text of fields) {
    const scan = new Scanner(text);
    while (!scan.done) {
      if (count >= maxAddresses) return;
      const mailbox = scan.mailbox();
      if (mailbox === undefined) continue;
      count += 1;
      yield mailbox;
    }
  }
}

/** Reads one mailbox after the other in linear time. */
class Scanner {
  readonly #text: string;
  readonly #lastClosing: number;
  #at = 0;
  /** Start of the mailbox. */
  #start = 0;
  #phrase = '';
  #comment = '';
  #angle: string | undefined;
  /** An `@` outside of quotes, comments and brackets was read. */
  #isAddress = false;

  constructor(text: string) {
    this.#text = text;
    this.#lastClosing = text.lastIndexOf('>');
  }

  get done(): boolean {
    return this.#at >= this.#text.length;
  }

  mailbox(): DisplayAddress | undefined {
    this.#angle = undefined;
    this.#begin();
    while (!this.done) {
      const character = this.#text[this.#at++];
      if (character === ',' || character === ';') return this.#finish(this.#at - 1);
      if (character === '<' && this.#hasAddress) return this.#finish(--this.#at);
      this.#take(character ?? '');
    }
    return this.#finish(this.#at);
  }

  /** Brackets in a display name hold none: `Team <EU> <team@x.example>`. */
  get #hasAddress(): boolean {
    return this.#angle?.includes('@') === true;
  }

  #begin(): void {
    this.#start = this.#at;
    this.#phrase = '';
    this.#comment = '';
    this.#isAddress = false;
  }

  #take(character: string): void {
    if (character === '"') this.#phrase += this.#inside(endOfQuoted);
    else if (character === '(') this.#comment += this.#inside(endOfComment);
    else if (character === '<') this.#angle = this.#bracketed();
    // End of a group's display name. `a:b@c` without blanks is malformed, not a group, and is kept.
    else if (character === ':' && this.#angle === undefined && !this.#isAddress) this.#begin();
    else {
      this.#isAddress ||= character === '@';
      this.#phrase += character;
    }
  }

  /** Text of a quoted string or a comment. */
  #inside(endOf: (text: string, from: number) => number): string {
    const from = this.#at;
    const end = endOf(this.#text, from - 1);
    this.#at = end < 0 ? this.#text.length : end;
    return this.#text.slice(from, end < 0 ? undefined : end - 1).replace(/\\(.)/gs, '$1');
  }

  #bracketed(): string {
    const [text, from] = [this.#text, this.#at];
    const end = from > this.#lastClosing ? -1 : closingBracket(text, from);
    const comma = end < 0 ? text.indexOf(',', from) : -1;
    const stop = end >= 0 ? end : comma >= 0 ? comma : text.length;
    this.#at = end >= 0 ? stop + 1 : stop;
    return text.slice(from, stop);
  }

  #finish(end: number): DisplayAddress | undefined {
    const phrase = tidy(this.#phrase);
    const comment = tidy(this.#comment);
    if (this.#angle !== undefined) {
      const address = bareAddress(this.#angle);
      const name = phrase === '' ? comment : phrase;
      return address === '' && name === '' ? undefined : { name, address };
    }
    if (this.#isAddress) return { name: comment, address: bareAddress(this.#text.slice(this.#start, end)) };
    if (phrase.includes('@') || (phrase !== '' && !/\s/.test(phrase))) return { name: comment, address: clip(phrase) };
    return phrase === '' ? undefined : { name: phrase, address: '' };
  }
}

/** Index after the closing quote; -1 when it is missing. */
function endOfQuoted(text: string, open: number): number {
  for (let at = open + 1; at < text.length; at++) {
    if (text[at] === '\\') at++;
    else if (text[at] === '"') return at + 1;
  }
  return -1;
}

/** Index after a comment; -1 when it has no end. Counts instead of recursing, since senders choose the depth. */
function endOfComment(text: string, open: number): number {
  let depth = 0;
  for (let at = open; at < text.length; at++) {
    if (text[at] === '\\') at++;
    else if (text[at] === '(') depth++;
    else if (text[at] === ')' && --depth === 0) return at + 1;
  }
  return -1;
}

/** Index of the first `>` outside of quotes and comments; of the first at all where those have no end. */
function closingBracket(text: string, from: number): number {
  const near = text.slice(from, from + maxTextLength);
  for (let at = 0; at < near.length; at++) {
    const character = near[at];
    if (character === '>') return from + at;
    if (character !== '"' && character !== '(') continue;
    const end = character === '"' ? endOfQuoted(near, at) : endOfComment(near, at);
    if (end < 0) break;
    at = end - 1;
  }
  return text.indexOf('>', from);
}

/**
 * Removes comments, a source route, and blanks around dots and `@`, outside of quotes. A text that is too long stays as
 * written, cut: without its end it could pass for another address.
 */
function bareAddress(text: string): string {
  if (text.length > maxTextLength) return clip(text);
  let out = '';
  let isApart = false;
  for (let at = 0; at < text.length;) {
    const character = text[at] ?? '';
    const end = character === '"' ? endOfQuoted(text, at) : character === '(' ? endOfComment(text, at) : at + 1;
    const piece = text.slice(at, end < 0 ? undefined : end);
    at += piece.length;
    const isBlank = character === '(' || piece.trim() === '';
    const joins = character === '.' || character === '@' || out.endsWith('.') || out.endsWith('@');
    if (!isBlank) out += isApart && !joins ? ` ${piece}` : piece;
    isApart = out !== '' && isBlank;
  }
  return out.replace(sourceRoute, '');
}

function tidy(text: string): string {
  return clip(decodeWords(clip(text.trim())).replace(/\s+/g, ' ').trim());
}

function clip(text: string): string {
  return text.length > maxTextLength ? text.slice(0, maxTextLength) : text;
}
