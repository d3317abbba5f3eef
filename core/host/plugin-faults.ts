import { dirname } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../clock.js';
import type { PluginFault } from '../contracts/plugins-overview.js';
import { faultCode } from '../disk/fault.js';
import { redactText } from '../log/redact.js';
import type { Plugin } from '../plugin.js';
import { isProblem, isStartError, problem, type Problem, startError, type StartError } from '../problem.js';
import { kitVersion } from './declaration.js';
import { locationBelow } from './uncaught.js';
import type { HealthReport } from '../contracts/health.js';
import type { SiteOrigin, UnloadedSite } from './plugin-set.js';
import type { SiteEntry } from './site-files.js';

/** A plugin with this many faults within the window is degraded. */
const degradedFaults = 3;
const windowMs = 5 * 60_000;
const maxMessageCharacters = 500;

interface Record {
  count: number;
  last: PluginFault;
  /** Monotonic times of the newest faults, at most `degradedFaults`. */
  recent: readonly number[];
}

/** Faults of each plugin since it was started or reloaded. */
export class PluginFaults {
  readonly #clock: Clock;
  readonly #records = new Map<string, Record>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  record(plugin: string, where: string, error: unknown): void {
    const message = redactText(error instanceof Error ? error.message : String(error)).slice(0, maxMessageCharacters);
    const last = { at: new Date(this.#clock.now()).toISOString(), where, message };
    const { count, recent } = this.#records.get(plugin) ?? { count: 0, recent: [] };
    this.#records.set(plugin, {
      count: count + 1,
      last,
      recent: [...recent, this.#clock.monotonic()].slice(-degradedFaults),
    });
  }

  forget(plugin: string): void {
    this.#records.delete(plugin);
  }

  count(plugin: string): number {
    return this.#records.get(plugin)?.count ?? 0;
  }

  last(plugin: string): PluginFault | null {
    return this.#records.get(plugin)?.last ?? null;
  }

  report(plugin: string): HealthReport {
    const record = this.#records.get(plugin);
    const now = this.#clock.monotonic();
    const recent = record?.recent.filter((at) => now - at < windowMs) ?? [];
    if (record === undefined || recent.length < degradedFaults) return { status: 'up' };
    const { where, message } = record.last;
    return {
      status: 'degraded',
      why: `It failed ${degradedFaults} times or more in the last five minutes, the last time in ${where}: ${message}`,
    };
  }
}

/** A site plugin that was left out because it could not be loaded or set up. */
export interface FailedPlugin {
  readonly name: string;
  readonly entry: SiteEntry;
  readonly where: 'load' | 'setup';
  /** A sentence for an operator. */
  readonly why: string;
  /** ISO 8601. */
  readonly at: string;
  readonly kit: string;
  /** Of the failed code; undefined when it was not found. */
  readonly fingerprint: string | undefined;
  /** Options at the time of the failure. */
  readonly options: unknown;
  readonly cause: unknown;
}

export const loadFailure = ({ entry, name, fingerprint, why }: UnloadedSite, at: string): FailedPlugin => ({
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

export function setupFailure(
  { name, kit }: Plugin,
  origin: SiteOrigin,
  { options, cause, at }: Pick<FailedPlugin, 'options' | 'cause' | 'at'>,
): FailedPlugin {
  const { entry, fingerprint } = origin;
  const sentence = messageWithLocation(cause, origin);
  const why = isStartError(cause) ? sentence : `Plugin ${name} could not start: ${sentence}`;
  return { name, entry, where: 'setup', why, at, kit: String(kit), fingerprint, options, cause };
}

/**
 * The same failure with the time of its first occurrence; undefined when it is new. A known failure refuses no reload.
 */
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

export const redactedMessage = (error: unknown): string =>
  redactText(error instanceof Error ? error.message : String(error));

/** A problem for a peer that hides the fault of the system behind it, which an operator needs. */
const isStorageFault = (error: unknown): error is Problem => isProblem(error) && faultCode(error.cause) !== undefined;

/** Adds the line of the plugin's code where the error began, except to our own sentences. */
export function messageWithLocation(error: unknown, origin: Pick<SiteOrigin, 'file'> | undefined): string {
  const sentence = redactedMessage(isStorageFault(error) ? error.cause : error);
  if (origin === undefined || origin.file === '' || isStartError(error) || isProblem(error)) return sentence;
  const place = locationBelow(dirname(origin.file), error);
  return place === undefined ? sentence : `${place}: ${sentence}`;
}

interface NotStarted {
  readonly origin?: SiteOrigin;
  /** Why the server does not start without it. */
  readonly because?: string;
}

export function startFailure({ name }: Plugin, error: unknown, { origin, because }: NotStarted = {}): StartError {
  const first = isStartError(error)
    ? error.message
    : `Plugin ${name} could not start: ${messageWithLocation(error, origin)}`;
  if (because === undefined) return isStartError(error) ? error : startError(first, error);
  return startError(`${first.replace(/\.$/, '')}. The server does not start without it: ${because}.`, error);
}

/** A reload that fails because of new options. */
export function optionsRefusal(name: string, cause: unknown): Problem {
  const sentence = `The plugin ${name} refuses its options: ${redactedMessage(cause)}`;
  return problem('invalid', {
    detail: sentence,
    errors: [{ pointer: `/plugins/${name}`, message: sentence }],
    cause,
  });
}

/** A site plugin that makes a reload fail. */
interface RefusedPlugin {
  readonly name: string;
  readonly entry: SiteEntry | undefined;
  /** A sentence with the reason. */
  readonly why: string;
  /** Whether an older version of it runs. */
  readonly runs: boolean;
  readonly cause?: unknown;
}

/** Beginning of our own sentences that already name the plugin. */
const ownName = (name: string): RegExp => new RegExp(`^Plugin ${name}(?:,| could not start:) `);

export function pluginRefusal({ name, entry, why: told, runs, cause }: RefusedPlugin): Problem {
  const from = entry === undefined ? '' : ` (${entry.from})`;
  const after = runs ? ' The running version continues.' : '';
  const why = told.replace(/\.$/, '').replace(ownName(name), '').replace(`Plugin ${name} `, 'it ');
  const sentence = `${why.startsWith('Site plugin ') ? why : `The plugin ${name}${from} is refused: ${why}`}.${after}`;
  return problem('invalid', { detail: sentence, errors: [{ pointer: '/sitePlugins', message: sentence }], cause });
}
