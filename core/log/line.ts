import { mayHoldSecret, redactFields } from './redact.js';

/** Bytes of a line with its line end; longer ones are cut. */
const MAX_LINE_BYTES = 8192;
/** Characters of a line that are searched for secrets; longer ones are cut first, to bound the cost. */
const MAX_SEARCHED = 65_536;

/** Valid in JSON (RFC 8259), but unsafe in terminals and line readers: DEL, C1, U+2028/9, bidi controls, BOM. */
const unsafe = /[\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

type Fields = Readonly<Record<string, unknown>>;

/**
 * Prepares a log line for output: masks secrets, cuts it to `MAX_LINE_BYTES`, escapes control and bidi characters.
 *
 * @param line one JSON object, with or without a line end
 * @returns one JSON object and `\n`
 */
export function sanitizeLine(line: string): string {
  const secret = mayHoldSecret(line);
  const long = line.length * 3 > MAX_LINE_BYTES && Buffer.byteLength(line) > MAX_LINE_BYTES - 1;
  if (!secret && !long) return escape(line.endsWith('\n') ? line : `${line}\n`);
  const fields = line.length > MAX_SEARCHED ? bound(parse(line)) : parse(line);
  const clean = secret ? redactFields(fields) : fields;
  const text = escape(`${JSON.stringify(clean)}\n`);
  return Buffer.byteLength(text) <= MAX_LINE_BYTES ? text : shorten(clean, Buffer.byteLength(line));
}

const escape = (line: string): string =>
  line.replace(unsafe, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);

function parse(line: string): Fields {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? { ...value } : { msg: String(value) };
  } catch {
    return { level: 'error', msg: 'a log line could not be parsed', length: line.length };
  }
}

type Cutter = (text: string) => string;

/** Drops the last word: a secret that is cut in two would not be recognized. */
const cutWords =
  (limit: number): Cutter =>
  (text) =>
    text.length <= limit
      ? text
      : `${text.slice(0, limit).replace(/\S{0,600}$/, '')}…[+${text.length - limit} characters]`;

const cutText =
  (limit: number): Cutter =>
  (text) =>
    text.length <= limit ? text : `${text.slice(0, limit)}…[+${text.length - limit} characters]`;

function bound(fields: Fields): Fields {
  const limits = [16_384, 4096, 1024];
  return (
    limits
      .map((limit) => cutFields(fields, cutWords(limit)))
      .find((shorter) => JSON.stringify(shorter).length <= MAX_SEARCHED) ?? headOf(fields, cutWords(16_384))
  );
}

/** Cuts harder until the line fits; keeps only the head of what never fits. */
function shorten(fields: Fields, bytes: number): string {
  for (const limit of [2000, 500, 120, 40]) {
    const text = escape(`${JSON.stringify({ ...cutFields(fields, cutText(limit)), cut: bytes })}\n`);
    if (Buffer.byteLength(text) <= MAX_LINE_BYTES) return text;
  }
  return escape(`${JSON.stringify({ ...headOf(fields, cutText(500)), cut: bytes })}\n`);
}

const headOf = ({ level, time, plugin, msg }: Fields, cutter: Cutter): Fields =>
  cutFields({ level, time, plugin, msg: typeof msg === 'string' ? msg : undefined }, cutter);

const cutName = cutText(100);

const cutFields = (fields: Fields, cutter: Cutter): Fields =>
  Object.fromEntries(
    Object.entries(fields)
      .slice(0, 50)
      .map(([name, value]) => [cutName(name), cut(value, cutter, 0)]),
  );

function cut(value: unknown, cutter: Cutter, depth: number): unknown {
  if (typeof value === 'string') return cutter(value);
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= 4) return '[cut]';
  if (Array.isArray(value)) {
    const kept = value.slice(0, 20).map((element) => cut(element, cutter, depth + 1));
    return value.length > 20 ? [...kept, `[+${value.length - 20} more]`] : kept;
  }
  const entries = Object.entries(value).slice(0, 20);
  return Object.fromEntries(entries.map(([name, below]) => [cutName(name), cut(below, cutter, depth + 1)]));
}

/** Limits on causes and stack frames. */
const MAX_CAUSES = 4;
const MAX_FRAMES = 12;

/** An error as log fields: type, message, stack and causes. */
export function errorFields(value: unknown): unknown {
  return value instanceof Error ? describe(value, 0) : value;
}

function describe(error: Error, depth: number): Readonly<Record<string, unknown>> {
  const { code, syscall, problem } = error as {
    readonly code?: unknown;
    readonly syscall?: unknown;
    readonly problem?: unknown;
  };
  return {
    type: error.name,
    message: error.message,
    ...(plain(code) && { code }),
    ...(plain(syscall) && { syscall }),
    ...(plain(problem) && { problem }),
    ...(typeof error.stack === 'string' && { stack: frames(error.stack) }),
    ...(error.cause !== undefined && { cause: causeOf(error.cause, depth) }),
  };
}

const plain = (value: unknown): boolean => typeof value === 'string' || typeof value === 'number';

function causeOf(cause: unknown, depth: number): unknown {
  if (!(cause instanceof Error)) return typeof cause === 'string' ? cause : typeof cause;
  return depth < MAX_CAUSES ? describe(cause, depth + 1) : cause.message;
}

/** Without the message, which may hold line ends and is a field of its own. */
const frames = (stack: string): string =>
  stack
    .split('\n')
    .filter((line) => /^\s+at /.test(line))
    .slice(0, MAX_FRAMES)
    .map((line) => line.trim())
    .join('\n');

/** Fields that the readable form shows before the others. */
const placed = new Set(['level', 'time', 'plugin', 'msg']);

/**
 * A log line for a terminal: `00:32:59 warn store: cannot read the folder code="EACCES"`.
 *
 * @param line one JSON object, already redacted
 */
export function prettyLine(line: string): string {
  return lineWith(line, (time) => time.slice(11, 19));
}

/** The same with date and milliseconds, for files and pipes. */
export function fullLine(line: string): string {
  return lineWith(line, (time) => time);
}

function lineWith(line: string, clockOf: (time: string) => string): string {
  const fields = parsePretty(line);
  if (fields === undefined) return `${visible(line.replace(/\n$/, ''))}\n`;
  const { level, time, plugin, msg } = fields;
  const rest = Object.entries(fields)
    .filter(([name]) => !placed.has(name))
    .map(([name, value]) => ` ${visible(name)}=${visible(JSON.stringify(value) ?? '')}`);
  const clock = typeof time === 'string' ? visible(clockOf(time)) : '';
  const who = typeof plugin === 'string' ? `${visible(plugin)}: ` : '';
  return `${clock} ${visible(String(level)).padEnd(5)} ${who}${visible(typeof msg === 'string' ? msg : '')}${rest.join('')}\n`;
}

function parsePretty(line: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}

/** Escapes control characters, which a terminal would obey. */
const visible = (text: string): string =>
  text.replace(
    /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
