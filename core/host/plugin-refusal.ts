import type { Plugin } from '../plugin.js';
import { problem, type Problem } from '../problem.js';
import { redactText } from '../redact.js';
import type { SiteEntry } from '../site/site-entry.js';
import { isStartError, startError, type StartError } from '../start-error.js';

export const sentenceOf = (error: unknown): string =>
  redactText(error instanceof Error ? error.message : String(error));

/** @param because why the server does not run without it */
export function notStarted({ name }: Plugin, error: unknown, because?: string): StartError {
  const first = isStartError(error) ? error.message : `Plugin ${name} could not start: ${sentenceOf(error)}`;
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

/** A reload that stops at a plugin of the site. @param runs whether an older one of it does */
export function refusedPlugin(name: string, entry: SiteEntry | undefined, cause: unknown, runs: boolean): Problem {
  const from = entry === undefined ? '' : ` (${entry.from})`;
  const after = runs ? ' The one that runs goes on.' : '';
  const why = sentenceOf(cause).replace(/\.$/, '');
  const sentence = `${why.startsWith('Site plugin ') ? why : `The plugin ${name}${from} is refused: ${why}`}.${after}`;
  return problem('invalid', { detail: sentence, errors: [{ pointer: '/sitePlugins', message: sentence }], cause });
}
