import type { PluginHost } from './boot.js';
import type { Clock } from './clock.js';
import type { LiveConfiguration } from './config/live.js';
import type { LoadedConfiguration } from './config/load.js';
import { placesOf } from './config/refusal.js';
import { httpInForce, smtpInForce } from './config/restart.js';
import type { Difference, LastReload, Reloading, ReloadOutcome } from './contracts/server.js';
import { AccessRules } from './http/access-rules.js';
import type { HttpShell } from './http/shell.js';
import type { Log } from './log.js';
import { isProblem, problem } from './problem.js';
import { redactText } from './redact.js';
import type { SmtpEngine } from './smtp/engine.js';
import type { PreparedSettings } from './smtp/settings-in-force.js';
import { isStartError } from './start-error.js';

export interface ReloadParts {
  readonly live: LiveConfiguration;
  /** Reads and checks the configuration as at the start. @throws start error */
  readonly load: () => Promise<LoadedConfiguration>;
  /** They are started behind the reload, which one of them offers. */
  readonly plugins: () => PluginHost;
  readonly http: Pick<HttpShell, 'reconfigure'>;
  readonly smtp: Pick<SmtpEngine, 'prepare'>;
  readonly log: Log;
  readonly clock: Clock;
}

type Undo = () => void | Promise<void>;

/** A configuration that passed every check, and what it would change. */
interface Plan {
  readonly next: LoadedConfiguration;
  readonly smtp: PreparedSettings;
  readonly differences: readonly Difference[];
}

/** Brings a changed configuration into force: everything is checked first, then swapped, and taken back when a part refuses. */
export class Reload implements Reloading {
  readonly #parts: ReloadParts;
  #running = false;
  #last: LastReload | null = null;

  constructor(parts: ReloadParts) {
    this.#parts = parts;
  }

  last(): LastReload | null {
    return this.#last;
  }

  async reload({ by, dryRun = false }: { readonly by: string; readonly dryRun?: boolean }): Promise<ReloadOutcome> {
    if (this.#running) throw problem('conflict', 'Another reload runs at this moment.');
    this.#running = true;
    try {
      const plan = await this.#plan();
      if (dryRun) return outcomeOf('dryRun', plan.differences);
      await this.#swap(plan);
      const outcome = outcomeOf(
        plan.differences.some(({ restart }) => !restart) ? 'reloaded' : 'unchanged',
        plan.differences,
      );
      this.#took(by, outcome);
      return outcome;
    } catch (error) {
      if (!dryRun) this.#refused(by, error);
      throw error;
    } finally {
      this.#running = false;
    }
  }

  async #plan(): Promise<Plan> {
    const { live, smtp } = this.#parts;
    const next = await this.#parts.load().catch((error: unknown) => {
      throw asInvalid(error, '');
    });
    const http = httpInForce(live.started, next);
    checked('http.access', () => new AccessRules(http.access));
    const prepared = checked('smtp.listeners', () => smtp.prepare(smtpInForce(live.started, next), next.domains));
    const differences = live.differences(next);
    const known = new Set(differences.map(({ key }) => key));
    const renewed = prepared.renewed
      .map(
        (name) => `smtp.listeners.${next.settings.smtp.listeners.findIndex((listener) => listener.name === name)}.cert`,
      )
      .filter((key) => !known.has(key))
      .map((key): Difference => ({ key, before: 'as it was read', after: 'as the file is now', restart: false }));
    return { next, smtp: prepared, differences: [...renewed, ...differences] };
  }

  /** What cannot fail comes last and in one step. */
  async #swap({ next, smtp }: Plan): Promise<void> {
    const { live, http } = this.#parts;
    const plugins = this.#parts.plugins();
    const old = live.current;
    const undo: Undo[] = [];
    try {
      live.use(next);
      undo.push(() => live.use(old));
      await plugins.reconfigure(next.options, () => live.use(old));
      undo.push(async () => void (await plugins.reconfigure(old.options)));
      undo.push(() => live.tellBack());
      await live.tell();
      undo.push(smtp.commit());
      undo.push(() => http.reconfigure(httpInForce(live.started, old), old.settings.smtp.limits.messageBytes));
      http.reconfigure(httpInForce(live.started, next), next.settings.smtp.limits.messageBytes);
    } catch (error) {
      await this.#takeBack(undo);
      throw isProblem(error) && error.problem === 'invalid' ? error : refusedBy(error);
    }
  }

  /** In the order of going forth: the values come first, because who goes back reads them. */
  async #takeBack(undo: readonly Undo[]): Promise<void> {
    for (const step of undo) {
      try {
        await step();
      } catch (error) {
        this.#parts.log.error({ err: error }, 'a part of the server could not go back to its old configuration');
      }
    }
  }

  #took(by: string, { changed, restartRequired }: ReloadOutcome): void {
    this.#last = { at: this.#now(), by, refused: null };
    this.#parts.log.info({ by, changed, restartRequired }, 'the configuration was reloaded');
  }

  #refused(by: string, error: unknown): void {
    const why = isProblem(error) ? error.message : 'It failed; the log says why.';
    this.#last = { at: this.#now(), by, refused: redactText(why) };
    this.#parts.log.warn({ by, err: error }, 'a reload was refused; everything stays as it was');
  }

  #now(): string {
    return new Date(this.#parts.clock.now()).toISOString();
  }
}

function outcomeOf(status: ReloadOutcome['status'], differences: readonly Difference[]): ReloadOutcome {
  const keys = (restart: boolean) => differences.filter((one) => one.restart === restart).map(({ key }) => key);
  return { status, changed: keys(false), restartRequired: keys(true), differences };
}

function checked<T>(key: string, check: () => T): T {
  try {
    return check();
  } catch (error) {
    throw asInvalid(error, key);
  }
}

/** What stopped a start stops a reload, with the same sentences. */
function asInvalid(error: unknown, key: string): unknown {
  if (!isStartError(error)) return error;
  const errors = placesOf(error, key).map(({ pointer, message }) => ({ pointer, message: redactText(message) }));
  const [first] = errors;
  const more = errors.length > 1 ? ` (and ${errors.length - 1} more)` : '';
  return problem('invalid', { detail: `${first?.message ?? ''}${more}`, errors, cause: error });
}

/** A part that looked good and failed when it was its turn. */
function refusedBy(cause: unknown): unknown {
  if (!isProblem(cause) && !isStartError(cause)) return cause;
  return problem('invalid', { detail: cause.message, errors: [{ pointer: '', message: cause.message }], cause });
}
