import { readFileSync, statSync } from 'node:fs';
import JSON5 from 'json5';
import { startError } from '../problem.js';
import { positionsOf, repeatedKeys, type KeyPath, type Position, type RepeatedKey } from './positions.js';

const maxCharacters = 1024 * 1024;

/** A parsed configuration file. */
export interface ConfigFile {
  readonly path: string;
  readonly text: string;
  readonly content: Readonly<Record<string, unknown>>;
  readonly positions: ReadonlyMap<KeyPath, Position>;
  /** Repeated keys, which the parser accepts. */
  readonly repeated: readonly RepeatedKey[];
}

/**
 * Reads a JSON5 file.
 *
 * @throws start error with the line of a mistake
 */
export function readConfigFile(path: string): ConfigFile {
  return parseConfigFile(path, readText(path));
}

/** The same for a given text; `path` names it in complaints. */
export function parseConfigFile(path: string, text: string): ConfigFile {
  if (text.length > maxCharacters) throw tooLarge(path);
  const content = parse(path, text);
  if (typeof content !== 'object' || content === null || Array.isArray(content)) {
    throw startError(`${path}: the configuration must be an object: { hostname: 'mail.example.org', … }`);
  }
  return { path, text, content: content as Record<string, unknown>, ...keysIn(path, text) };
}

function keysIn(path: string, text: string): Pick<ConfigFile, 'positions' | 'repeated'> {
  try {
    return { positions: positionsOf(text), repeated: repeatedKeys(text) };
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw startError(`${path}: the configuration is ${cause.message}.`, cause);
  }
}

function readText(path: string): string {
  try {
    // Does not read a file that is far too large.
    const text = statSync(path).size > 4 * maxCharacters ? undefined : readFileSync(path, 'utf8');
    if (text !== undefined && text.length <= maxCharacters) return text;
  } catch (cause) {
    const missing = (cause as NodeJS.ErrnoException).code === 'ENOENT';
    throw startError(
      missing ? `${path}: there is no such configuration file.` : `${path}: the configuration file cannot be read.`,
      cause,
    );
  }
  throw tooLarge(path);
}

const tooLarge = (path: string): Error =>
  startError(`${path}: a configuration file may have ${maxCharacters} characters at most.`);

function parse(path: string, text: string): unknown {
  try {
    return JSON5.parse<unknown>(text);
  } catch (cause) {
    const { lineNumber, columnNumber, message } = cause as SyntaxError & { lineNumber?: number; columnNumber?: number };
    const place = lineNumber === undefined ? path : `${path}:${placeOf(text, lineNumber, columnNumber ?? 1)}`;
    const reason = message.replace(/^JSON5: /, '').replace(/ at \d+:\d+$/, '');
    throw startError(`${place}: not valid JSON5: ${reason}.`, cause);
  }
}

/** The parser attributes an unexpected line end to the next line, column 0. */
function placeOf(text: string, line: number, column: number): string {
  if (column > 0) return `${line}:${column}`;
  return `${line - 1}:${(text.split('\n')[line - 2]?.length ?? 0) + 1}`;
}
