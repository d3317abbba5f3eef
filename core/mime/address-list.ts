import { decodeWords } from './words.js';

/** A mailbox for display. `address` is what was written, and need not be one that mail can be sent to. */
export interface DisplayAddress {
  readonly name: string;
  readonly address: string;
}

/** Most mailboxes that are taken from one field. */
const maxAddresses = 10_000;
const maxTextLength = 2000;

/**
 * The mailboxes of a `From`, `To`, … field (RFC 5322 §3.4), for display. Groups give their members, at any depth; comments
 * name a bare address, as in `user@example.com (Name)`. Broken input gives what can be seen in it. Linear, never throws.
 */
export function parseAddressList(text: string): readonly DisplayAddress[] {
  const found: DisplayAddress[] = [];
  const scan = new Scanner(text);
  while (!scan.done && found.length < maxAddresses) {
    const mailbox = scan.mailbox();
    if (mailbox !== undefined) found.push(mailbox);
  }
  return found;
}

/** Reads one mailbox after the other; every character is looked at once. */
class Scanner {
  readonly #text: string;
  #at = 0;
  #phrase = '';
  #comment = '';
  #angle: string | undefined;

  constructor(text: string) {
    this.#text = text;
  }

  get done(): boolean {
    return this.#at >= this.#text.length;
  }

  mailbox(): DisplayAddress | undefined {
    this.#phrase = '';
    this.#comment = '';
    this.#angle = undefined;
    while (!this.done) {
      const character = this.#text[this.#at++];
      if (character === ',' || character === ';') break;
      this.#take(character ?? '');
    }
    return this.#finish();
  }

  #take(character: string): void {
    if (character === '"') this.#phrase += this.#quoted();
    else if (character === '(') this.#comment += this.#nested();
    else if (character === '<') this.#angle = this.#bracketed();
    // The display name of a group ends here; `a:b@c` without blanks is no group but junk, and is kept.
    else if (character === ':' && this.#angle === undefined && !this.#phrase.includes('@')) this.#phrase = '';
    else this.#phrase += character;
  }

  /** Up to the closing quote; a missing one ends at the end of the text. */
  #quoted(): string {
    let out = '';
    while (!this.done) {
      const character = this.#text[this.#at++] ?? '';
      if (character === '"') break;
      out += character === '\\' && !this.done ? (this.#text[this.#at++] ?? '') : character;
    }
    return out;
  }

  /** A comment; a counter instead of recursion, for they nest as deep as the sender likes. */
  #nested(): string {
    let depth = 1;
    let out = '';
    while (!this.done) {
      const character = this.#text[this.#at++] ?? '';
      if (character === '\\' && !this.done) {
        out += this.#text[this.#at++] ?? '';
        continue;
      }
      if (character === '(') depth++;
      if (character === ')' && --depth === 0) break;
      out += character;
    }
    return out;
  }

  #bracketed(): string {
    const end = this.#text.indexOf('>', this.#at);
    const comma = end < 0 ? this.#text.indexOf(',', this.#at) : -1;
    const stop = end >= 0 ? end : comma >= 0 ? comma : this.#text.length;
    const inside = this.#text.slice(this.#at, stop);
    this.#at = end >= 0 ? stop + 1 : stop;
    return inside;
  }

  #finish(): DisplayAddress | undefined {
    const phrase = tidy(this.#phrase);
    const comment = tidy(this.#comment);
    if (this.#angle !== undefined) {
      const address = clip(this.#angle.trim());
      const name = phrase === '' ? comment : phrase;
      return address === '' && name === '' ? undefined : { name, address };
    }
    if (phrase.includes('@') || (phrase !== '' && !/\s/.test(phrase))) return { name: comment, address: clip(phrase) };
    return phrase === '' ? undefined : { name: phrase, address: '' };
  }
}

function tidy(text: string): string {
  return clip(decodeWords(clip(text.trim())).replace(/\s+/g, ' ').trim());
}

function clip(text: string): string {
  return text.length > maxTextLength ? text.slice(0, maxTextLength) : text;
}
