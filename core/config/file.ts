import { readFileSync } from 'node:fs';
import JSON5 from 'json5';
import { startError } from '../start-error.js';
import { positionsOf, type KeyPath, type Position } from './positions.js';

const largest = 1024 * 1024;

/** A configuration file as it was read. */
export interface ConfigFile {
  readonly path: string;
  readonly content: Readonly<Record<string, unknown>>;
  readonly positions: ReadonlyMap<KeyPath, Position>;
}

/** Reads a JSON5 file; what is wrong with it is a start error with its line. */
export function readConfigFile(path: string): ConfigFile {
  const text = readText(path);
  const content = parse(path, text);
  if (typeof content !== 'object' || content === null || Array.isArray(content)) {
    throw startError(`${path}: the configuration must be an object: { hostname: 'mail.example.org', … }`);
  }
  return { path, content: content as Record<string, unknown>, positions: positionsOf(text) };
}

function readText(path: string): string {
  try {
    const text = readFileSync(path, 'utf8');
    if (text.length <= largest) return text;
  } catch (cause) {
    const missing = (cause as NodeJS.ErrnoException).code === 'ENOENT';
    throw startError(
      missing ? `${path}: there is no such configuration file.` : `${path}: the configuration file cannot be read.`,
      cause,
    );
  }
  throw startError(`${path}: a configuration file may have ${largest} characters at most.`);
}

function parse(path: string, text: string): unknown {
  try {
    return JSON5.parse<unknown>(text);
  } catch (cause) {
    const { lineNumber, columnNumber, message } = cause as SyntaxError & { lineNumber?: number; columnNumber?: number };
    const place = lineNumber === undefined ? path : `${path}:${lineNumber}:${columnNumber ?? 1}`;
    const reason = message.replace(/^JSON5: /, '').replace(/ at \d+:\d+$/, '');
    throw startError(`${place}: not valid JSON5: ${reason}.`, cause);
  }
}
