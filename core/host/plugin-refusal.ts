import { dirname } from 'node:path';
import type { Plugin } from '../plugin.js';
import { placeBelow } from './error-place.js';
import type { SiteOrigin } from './plugin-program.js';
import { isProblem, isStartError, problem, type Problem, startError, type StartError } from '../problem.js';
import { redactText } from '../log/redact.js';
import type { SiteEntry } from './site-entry.js';

export const sentenceOf = (error: unknown): string =>
  redactText(error instanceof Error ? error.message : String(error));

/** With the line of its code where it began, unless it is a sentence of ours. */
export function placedSentence(error: unknown, origin: Pick<SiteOrigin, 'file'> | undefined): string {
  const sentence = sentenceOf(error);
  if (origin === undefined || origin.file === '' || isStartError(error) || isProblem(error)) return sentence;
  const place = placeBelow(dirname(origin.file), error);
  return place === undefined ? sentence : `${place}: ${sentence}`;
}

export interface NotStarted {
  readonly origin?: SiteOrigin;
  /** Why the server does not run without it. */
  readonly because?: string;
}

export function notStarted({ name }: Plugin, error: unknown, { origin, because }: NotStarted = {}): StartError {
  const first = isStartError(error)
    ? error.message
    : `Plugin ${name} could not start: ${placedSentence(error, origin)}`;
  if (because === undefined) return isStartError(error) ? error : startError(first, error);
  return startError(`${first.replace(/\.$/, '')}. The server does not start without it: ${because}.`, error);
}

/** A reload that stops at new options. */
export function refusedOptions(name: string, cause: unknown): Problem {
  const sentence = `The plugin ${name} refuses its options: ${sentenceOf(cause)}`;
  return problem('invalid', {
    detail: sentence,
    errors: [{ pointer: `/plugins/${name}`, message: sentence }],
    cause,
  });
}

/** A plugin of the site at which a reload stops. */
export interface RefusedPlugin {
  readonly name: string;
  readonly entry: SiteEntry | undefined;
  /** A sentence that says why. */
  readonly why: string;
  /** Whether an older one of it runs. */
  readonly runs: boolean;
  readonly cause?: unknown;
}

/** How our own sentences begin that name the plugin by themselves. */
const ownName = (name: string): RegExp => new RegExp(`^Plugin ${name}(?:,| could not start:) `);

export function refusedPlugin({ name, entry, why: told, runs, cause }: RefusedPlugin): Problem {
  const from = entry === undefined ? '' : ` (${entry.from})`;
  const after = runs ? ' The one that runs goes on.' : '';
  const why = told.replace(/\.$/, '').replace(ownName(name), '').replace(`Plugin ${name} `, 'it ');
  const sentence = `${why.startsWith('Site plugin ') ? why : `The plugin ${name}${from} is refused: ${why}`}.${after}`;
  return problem('invalid', { detail: sentence, errors: [{ pointer: '/sitePlugins', message: sentence }], cause });
}
