import { realpathSync } from 'node:fs';
import { join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot } from './installation.js';
import { siteEntryOf, siteLocations } from './site-files.js';

/** An error that no code caught. */
export interface UncaughtError {
  readonly error: unknown;
  readonly origin: UncaughtOrigin;
  /** The element of `sitePlugins` in the stack; undefined when there is none. */
  readonly from: string | undefined;
}

/** As in the events of `process`. */
type UncaughtOrigin = 'uncaughtException' | 'unhandledRejection';

/** Errors kept until there is a receiver. */
const maxPending = 100;

/**
 * Uncaught errors: a plugin throws in a callback of its own, or drops a promise that rejects. Node ends the process;
 * here it ends only when the error may have interrupted our own code.
 */
export class UncaughtErrors {
  #report: ((error: UncaughtError) => void) | undefined;
  readonly #pending: UncaughtError[] = [];

  /**
   * Whether the server continues. A rejected promise interrupts no code of ours, nor does an error thrown in a callback
   * of a plugin.
   */
  handle(error: unknown, origin: UncaughtOrigin): boolean {
    const frames = filesInStack(error);
    const isOurs = origin === 'uncaughtException' && isOurCode(frames.at(-1) ?? '');
    if (siteLocations().size === 0 || isOurs) return false;
    const uncaught = { error, origin, from: frames.map(siteEntryOf).find((from) => from !== undefined) };
    if (this.#report !== undefined) this.#report(uncaught);
    else if (this.#pending.length < maxPending) this.#pending.push(uncaught);
    return true;
  }

  /** Passes on errors from now on, after those that were kept. */
  reportTo(report: (error: UncaughtError) => void): void {
    this.#report = report;
    for (const error of this.#pending.splice(0)) report(error);
  }
}

/**
 * Where an error began below the folder, as `index.js:12:9`: the innermost frame of the error and its causes. Undefined
 * when no frame is there.
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

/** The innermost cause first: outer errors only wrap it. */
function stacksOf(error: unknown): readonly string[] {
  if (typeof error === 'string') return [error];
  return error instanceof Error ? [...stacksOf(error.cause), error.stack ?? ''] : [];
}

/** Files in the stack of an error, innermost first; absolute. */
function filesInStack(error: unknown): readonly string[] {
  const stack = error instanceof Error ? (error.stack ?? '') : '';
  return [...stack.matchAll(framePattern)].map(([, url = '']) => pathOf(url));
}

/** Whether a file belongs to this installation or its packages, and not to a site plugin. */
function isOurCode(path: string): boolean {
  if (siteEntryOf(path) !== undefined) return false;
  const packages = `${sep}node_modules${sep}`;
  const at = packageRoot.lastIndexOf(packages);
  return path.startsWith(at < 0 ? packageRoot : packageRoot.slice(0, at + packages.length));
}

/** A plugin's folder may contain this installation. */
const ownCode = join(packageRoot, 'dist', sep);

/** `file:///folder/index.js?v=2:12:9` or a path; a syntax error has no column. */
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

/** The message of the innermost cause, without our wrapping. */
export function rootCauseText(error: unknown): string {
  let cause = error;
  while (cause instanceof Error && cause.cause instanceof Error) cause = cause.cause;
  return cause instanceof Error ? `${cause.name === 'Error' ? '' : `${cause.name}: `}${cause.message}` : String(cause);
}
