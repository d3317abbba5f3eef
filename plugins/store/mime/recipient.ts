import { problem, type Problem } from '../../../core/problem.js';
import { type Address, parseAddress } from '../../../core/mime/address.js';

/** A mailbox to write to: an address that mail can be sent to, and perhaps a name beside it. */
export interface Correspondent {
  /** Empty for none. */
  readonly name: string;
  readonly address: Address;
}

const maxNameLength = 200;
/** What a display name cannot hold, quoted or not: controls would end the header field. */
const refused = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u;
/** RFC 5322 §3.2.3 `specials` without the dot, which everybody writes in names. */
const special = /[()<>[\]:;@\\,"]/;

/** @throws Problem `invalid` */
export function correspondent(name: string, address: string): Correspondent {
  const trimmed = name.trim();
  if (refused.test(trimmed)) throw problem('invalid', 'A name must be one line without control characters.');
  if (trimmed.length > maxNameLength) throw problem('invalid', `A name may have ${maxNameLength} characters at most.`);
  return { name: trimmed, address: parseAddress(address) };
}

/**
 * Exactly one mailbox as people write it: `ann@example.org`, `Ann <ann@example.org>`, `"Doe, Ann" <ann@example.org>`. Unlike what
 * is shown of received mail, nothing is guessed and nothing dropped. Linear.
 * @throws Problem `invalid`
 */
export function parseCorrespondent(text: string): Correspondent {
  const [only, ...others] = splitList(text);
  if (only === undefined || others.length > 0) throw problem('invalid', 'Give exactly one address here.');
  return parseOne(only);
}

/** Mailboxes separated by commas; empty places are passed over. Groups are refused. @throws Problem `invalid` */
export function parseCorrespondents(text: string, most: number): readonly Correspondent[] {
  const pieces = splitList(text).filter((piece) => piece.trim() !== '');
  if (pieces.length > most) throw problem('invalid', `At most ${most} recipients are taken.`);
  return pieces.map(parseOne);
}

/** As `parseCorrespondent` reads it, for people to edit. */
export function writeCorrespondent({ name, address }: { readonly name: string; readonly address: string }): string {
  if (name === '') return address;
  const shown = special.test(name) ? `"${name.replace(/["\\]/g, '\\$&')}"` : name;
  return `${shown} <${address}>`;
}

function parseOne(text: string): Correspondent {
  const piece = text.trim();
  if (refused.test(text)) throw unreadable(piece);
  const open = openingBracket(piece);
  if (open < 0) return correspondent('', piece);
  if (!piece.endsWith('>')) throw unreadable(piece);
  return correspondent(unquoted(piece.slice(0, open).trim()), piece.slice(open + 1, -1));
}

/** Index of the first `<` outside of quotes, or -1. */
function openingBracket(text: string): number {
  let quoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (quoted && character === '\\') at += 1;
    else if (character === '"') quoted = !quoted;
    else if (character === '<' && !quoted) return at;
  }
  return -1;
}

function unquoted(phrase: string): string {
  const match = /^"((?:[^"\\]|\\.)*)"$/.exec(phrase);
  if (match !== null) return (match[1] ?? '').replace(/\\(.)/g, '$1');
  if (special.test(phrase)) throw unreadable(phrase);
  return phrase;
}

/** Pieces between the commas that are outside of quotes and angle brackets. */
function splitList(text: string): readonly string[] {
  const pieces: string[] = [];
  let quoted = false;
  let bracketed = false;
  let start = 0;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (quoted && character === '\\') at += 1;
    else if (character === '"') quoted = !quoted;
    else if (!quoted && character === '<') bracketed = true;
    else if (!quoted && character === '>') bracketed = false;
    else if (!quoted && !bracketed && character === ',') {
      pieces.push(text.slice(start, at));
      start = at + 1;
    }
  }
  pieces.push(text.slice(start));
  return pieces;
}

function unreadable(piece: string): Problem {
  const shown = piece.slice(0, 100).replace(/\p{C}/gu, '?');
  return problem('invalid', `"${shown}" is no address: write ann@example.org or Ann <ann@example.org>.`);
}
