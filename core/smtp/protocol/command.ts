import { parsePathArgument, type PathArgument } from '../../mime/address.js';
import { asciiUpperCase } from '../../mime/character.js';
import { isProblem } from '../../problem.js';

/** One command line, split at its first space. */
export interface SmtpCommand {
  /** Upper case; empty for an empty line. */
  readonly verb: string;
  /** The rest, trimmed. */
  readonly argument: string;
}

/** A path in angle brackets with its parameters, as in MAIL and RCPT. */
export interface PathCommand {
  /** With brackets. */
  readonly path: string;
  /** False when the path as written needs SMTPUTF8. */
  readonly ascii: boolean;
  readonly parameters: ReadonlyMap<string, string | null>;
}

/** Octets below space, and DEL: never valid in an argument. */
// eslint-disable-next-line no-control-regex
const control = /[\x00-\x1f\x7f]/;

/** Parses a line without its CRLF. Bytes beyond ASCII must be UTF-8; otherwise the result is `undefined`. */
export function parseCommand(line: Buffer): SmtpCommand | undefined {
  const text = line.toString('utf8');
  const space = text.indexOf(' ');
  const verb = asciiUpperCase(space < 0 ? text : text.slice(0, space));
  const argument = space < 0 ? '' : text.slice(space + 1).trim();
  return text.includes('\ufffd') ? undefined : { verb, argument };
}

/** The argument of BDAT (RFC 3030 §2). */
export interface Chunk {
  readonly octets: number;
  readonly isLast: boolean;
}

export function parseChunk(argument: string): Chunk | undefined {
  const match = /^(\d{1,20})( +LAST)?$/i.exec(argument);
  return match === null ? undefined : { octets: Number(match[1]), isLast: match[2] !== undefined };
}

/** Message text follows a line that is meant as BDAT, even if the line is malformed: it must not be read as commands. */
export const hasChunk = (line: Buffer): boolean => /^\s*BDAT/i.test(line.toString('latin1', 0, 64));

export const hasControl = (text: string): boolean => control.test(text);

/**
 * RFC 5321 §4.1.2: `FROM:<path> KEY=value KEY`. `keyword` is `FROM:` or `TO:`; a space after the colon is tolerated.
 */
export function parsePathCommand(argument: string, keyword: string, lenient = false): PathCommand | undefined {
  if (asciiUpperCase(argument.slice(0, keyword.length)) !== keyword || hasControl(argument)) return undefined;
  const split = splitPath(argument.slice(keyword.length), lenient);
  const parameters = split && parseParameters(split.rest);
  return split && parameters && { path: split.path, ascii: split.ascii, parameters };
}

function splitPath(text: string, lenient: boolean): PathArgument | undefined {
  try {
    return parsePathArgument(text, lenient);
  } catch (error) {
    if (isProblem(error)) return undefined;
    throw error;
  }
}

const none: ReadonlyMap<string, string | null> = new Map();
const parameterSyntax = /^([A-Za-z0-9][A-Za-z0-9-]*)(?:=([^= ]+))?$/;

function parseParameters(text: string): ReadonlyMap<string, string | null> | undefined {
  if (text === '') return none;
  const parameters = new Map<string, string | null>();
  for (const word of text.split(' ')) {
    if (word === '') continue;
    const match = parameterSyntax.exec(word);
    if (match?.[1] === undefined) return undefined;
    const key = match[1].toUpperCase();
    if (parameters.has(key)) return undefined;
    parameters.set(key, match[2] ?? null);
  }
  return parameters;
}

/** RFC 3461 §4: decodes `+` and two upper case hexadecimal digits. Undefined for invalid xtext. */
export function decodeXtext(text: string): string | undefined {
  if (!/^(?:[!-*,-<>-~]|\+[0-9A-F]{2})*$/.test(text)) return undefined;
  return text.replace(/\+([0-9A-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

const name = /^[A-Za-z0-9_](?:[A-Za-z0-9_.:-]*[A-Za-z0-9_.])?$/;
const literal = /^\[[A-Za-z0-9.:-]+\]$/;

/**
 * A valid argument of HELO, EHLO and LHLO (RFC 5321 §4.1.1.1): one name or address literal of at most 255 characters.
 * Bare addresses, underscores and single words are common and accepted; nothing that has a meaning in a header, a log
 * or a page is.
 */
export function isHelloName(text: string): boolean {
  return text.length <= 255 && (name.test(text) || literal.test(text));
}
