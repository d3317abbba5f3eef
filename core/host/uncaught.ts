import { realpathSync } from 'node:fs';
import { join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot } from './installation.js';
import { siteEntryOf, siteLocations } from './site-files.js';

/** What nobody caught. */
export interface UncaughtError {
  readonly error: unknown;
  readonly origin: UncaughtOrigin;
  /** The element of `sitePlugins` whose code it passed; undefined when its stack names none. */
  readonly from: string | undefined;
}

/** As `process` tells it. */
type UncaughtOrigin = 'uncaughtException' | 'unhandledRejection';

/** So many are kept before there is somebody to tell. */
const maxPending = 100;

/**
 * Errors that nobody catches: a plugin throws in a callback of its own, or lets go of a promise that rejects. They end a process
 * of Node.js; here they end it when it may have been our own code that they cut short.
 */
export class UncaughtErrors {
  #tell: ((stray: UncaughtError) => void) | undefined;
  readonly #kept: UncaughtError[] = [];

  /** Whether the server goes on. A promise cuts nobody short; nor does what was thrown in a callback that is not ours. */
  handle(error: unknown, origin: UncaughtOrigin): boolean {
    const frames = filesInStack(error);
    const isOurs = origin === 'uncaughtException' && isOurCode(frames.at(-1) ?? '');
    if (siteLocations().size === 0 || isOurs) return false;
    const stray = { error, origin, from: frames.map(siteEntryOf).find((from) => from !== undefined) };
    if (this.#tell !== undefined) this.#tell(stray);
    else if (this.#kept.length < maxPending) this.#kept.push(stray);
    return true;
  }

  /** From now on they are told, the first of all those that came before. */
  reportTo(tell: (stray: UncaughtError) => void): void {
    this.#tell = tell;
    for (const stray of this.#kept.splice(0)) tell(stray);
  }
}

/**
 * Where below that folder an error began, as `index.js:12:9`: the innermost of its frames, or of those of its causes, that
 * lie there. Undefined when it did not pass there.
 *
 * @param error or the text of its stack
 */
export function locationBelow(folder: string, error: unknown): string | undefined {
  const roots = [...new Set([folder, realFolder(folder)])].map((root) => `${root.replace(/\/$/, '')}/`);
  for (const stack of stacksOf(error)) {
    for (const [, url = '', line = '', column = ''] of stack.matchAll(framePattern)) {
      const path = pathOf(url);
      const root = path.startsWith(ownCode) ? undefined : roots.find((one) => path.startsWith(one));
      if (root !== undefined && !path.includes('/node_modules/', root.length - 1)) {
        return `${path.slice(root.length)}:${line}${column}`;
      }
    }
  }
  return undefined;
}

/** The innermost cause first: what is around it only passes it on. */
function stacksOf(error: unknown): readonly string[] {
  if (typeof error === 'string') return [error];
  return error instanceof Error ? [...stacksOf(error.cause), error.stack ?? ''] : [];
}

/** The files that an error passed, the innermost first; absolute. */
function filesInStack(error: unknown): readonly string[] {
  const stack = error instanceof Error ? (error.stack ?? '') : '';
  return [...stack.matchAll(framePattern)].map(([, url = '']) => pathOf(url));
}

/** Whether a file is of this installation, the packages that it brings among it, and not of a plugin of the site. */
function isOurCode(path: string): boolean {
  if (siteEntryOf(path) !== undefined) return false;
  const packages = `${sep}node_modules${sep}`;
  const at = packageRoot.lastIndexOf(packages);
  return path.startsWith(at < 0 ? packageRoot : packageRoot.slice(0, at + packages.length));
}

/** The folder of the plugin may hold this very installation. */
const ownCode = join(packageRoot, 'dist', sep);

/** `file:///folder/index.js?v=2:12:9` or a path; the frame of a mistake in the syntax has no column. */
const framePattern = /((?:file:\/\/)?\/[^\s()?:]+)(?:\?[^\s():]*)?:(\d+)(:\d+)?/g;

function pathOf(url: string): string {
  if (!url.startsWith('file:')) return url;
  try {
    return fileURLToPath(url);
  } catch {
    return url;
  }
}

function realFolder(folder: string): string {
  try {
    return realpathSync(folder);
  } catch {
    return folder;
  }
}

/** What was said, without our own wrapping: the sentence of the innermost cause. */
export function rootCauseText(error: unknown): string {
  let cause = error;
  while (cause instanceof Error && cause.cause instanceof Error) cause = cause.cause;
  return cause instanceof Error ? `${cause.name === 'Error' ? '' : `${cause.name}: `}${cause.message}` : String(cause);
}
