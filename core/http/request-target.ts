import { problem } from '../problem.js';
import type { Context, Next, Middleware } from './exchange.js';
import type { Fields } from './validation.js';

/** Checks length and spelling of the target before anything reads it. */
export function targetCheck(largest: () => number): Middleware {
  return function checkTarget(ctx: Context, next: Next) {
    if (ctx.url.length > largest()) throw problem('uri-too-long');
    checkPath(ctx.url.split('?', 1)[0] ?? '');
    return next();
  };
}

/** Characters that could mislead a reader or a file system: controls, direction marks, invisible spaces. */
const forbidden = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069\u200b\ufeff/\\]/u;

/**
 * Checks the path of a request as it came in. Everything that could be read in two ways is refused here, once, so that
 * a parameter is decoded exactly once and never holds a separator or a control character.
 */
function checkPath(path: string): void {
  if (!path.startsWith('/') || /[^\x21-\x7e]|[\\#]/.test(path)) throw unreadable();
  for (const segment of path.split('/')) {
    const decoded = decode(segment);
    if (decoded === '.' || decoded === '..' || forbidden.test(decoded)) throw unreadable();
  }
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw unreadable();
  }
}

const unreadable = () => problem('bad-request', 'The path cannot be read.');

const maxFields = 1000;

/** Parses `a=1&b=2`. Malformed percent signs, broken UTF-8 and NUL are refused. */
export function parseFields(text: string, what: 'query' | 'form'): Fields {
  const unreadable = () => problem('bad-request', `The ${what} cannot be read.`);
  try {
    decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw unreadable();
  }
  const fields = Object.create(null) as Record<string, string | string[]>;
  let count = 0;
  for (const [name, value] of new URLSearchParams(text)) {
    count += 1;
    if (count > maxFields || name.includes('\0') || value.includes('\0')) throw unreadable();
    const before = fields[name];
    if (before === undefined) fields[name] = value;
    else if (typeof before === 'string') fields[name] = [before, value];
    else before.push(value);
  }
  return fields;
}
