import { isDeepStrictEqual } from 'node:util';
import { kitVersion } from './kit-version.js';
import type { Plugin } from '../plugin.js';
import type { SiteOrigin } from './plugin-program.js';
import { placedSentence } from './plugin-refusal.js';
import type { SiteEntry } from './site-entry.js';
import type { UnloadedSite } from './site-plugins.js';
import { isStartError } from '../problem.js';

/** A plugin of the site that is left out. */
export interface FailedPlugin {
  readonly name: string;
  readonly entry: SiteEntry;
  readonly where: 'load' | 'setup';
  /** A sentence for an operator. */
  readonly why: string;
  /** ISO 8601. */
  readonly at: string;
  readonly kit: string;
  /** Of the code that failed; undefined when there was none. */
  readonly fingerprint: string | undefined;
  /** That it failed with. */
  readonly options: unknown;
  readonly cause: unknown;
}

export const unloadedPlugin = ({ entry, name, fingerprint, why }: UnloadedSite, at: string): FailedPlugin => ({
  name,
  entry,
  where: 'load',
  why,
  at,
  kit: kitVersion,
  fingerprint,
  options: undefined,
  cause: undefined,
});

export function unstartedPlugin(
  { name, kit }: Plugin,
  origin: SiteOrigin,
  { options, cause, at }: Pick<FailedPlugin, 'options' | 'cause' | 'at'>,
): FailedPlugin {
  const { entry, fingerprint } = origin;
  const sentence = placedSentence(cause, origin);
  const why = isStartError(cause) ? sentence : `Plugin ${name} could not start: ${sentence}`;
  return { name, entry, where: 'setup', why, at, kit: String(kit), fingerprint, options, cause };
}

/** The same failure, since when it is known; undefined when it is new. What is known is no reason to refuse anything. */
export function knownFailure(known: readonly FailedPlugin[], failure: FailedPlugin): FailedPlugin | undefined {
  const { name, entry, where, fingerprint, options } = failure;
  const before = known.find(
    (one) =>
      one.name === name &&
      one.entry.from === entry.from &&
      one.where === where &&
      one.fingerprint === fingerprint &&
      isDeepStrictEqual(one.options, options),
  );
  return before && { ...failure, at: before.at };
}
