import { randomUUID } from 'node:crypto';
import type { PluginHost } from './plugin-host.js';
import type { Clock } from '../clock.js';
import { effectiveHttpSettings, type LiveConfiguration } from '../config/live.js';
import type { LoadedConfiguration } from '../config/load.js';
import { invalidPlacesOf } from '../config/complaint.js';
import type {
  Difference,
  LastReload,
  LayerFile,
  Reloading,
  ReloadOutcome,
  ReloadRequest,
} from '../contracts/server.js';
import { AccessRules } from '../http/access.js';
import type { Accounts, PreparedAccounts } from '../http/accounts.js';
import type { AuditSink } from '../http/shell/audit.js';
import { requireAccountForRemoteBind } from '../http/request-checks.js';
import type { HttpShell } from '../http/shell/shell.js';
import type { Log } from '../log/log.js';
import type { PluginTracker } from './plugin-states.js';
import { classOf, isProblem, isStartError, problem } from '../problem.js';
import { redactText } from '../log/redact.js';
import type { PreparedSettings, SmtpEngine } from '../smtp/server/listeners.js';

export interface ReloadDeps {
  readonly live: LiveConfiguration;
  /**
   * Reads and checks the configuration as at the start; `layers` replace those on disk.
   *
   * @throws start error
   */
  readonly load: (layers?: readonly LayerFile[]) => Promise<LoadedConfiguration>;
  /** The host is created after the reload service, which one of its plugins uses. */
  readonly plugins: () => PluginHost;
  readonly tracker: Pick<PluginTracker, 'remember'>;
  readonly http: Pick<HttpShell, 'reconfigure' | 'viewOverrides'>;
  readonly accounts: Pick<Accounts, 'prepare'>;
  readonly audit: Pick<AuditSink, 'write'>;
  readonly smtp: Pick<SmtpEngine, 'prepare'>;
  readonly log: Log;
  readonly clock: Clock;
}

type Undo = () => void | Promise<void>;

/** A configuration that passed every check, and what it would change. */
interface Plan {
  readonly next: LoadedConfiguration;
  readonly smtp: PreparedSettings;
  readonly accounts: PreparedAccounts;
  /** Activates the views of `http.viewOverrides`. */
  readonly views: () => Undo;
  readonly differences: readonly Difference[];
}

/** Activates a changed configuration: checks everything, then swaps, and rolls back when a part refuses. */
export class Reload implements Reloading {
  readonly #deps: ReloadDeps;
  #running = false;
  #last: LastReload | null = null;

  constructor(deps: ReloadDeps) {
    this.#deps = deps;
  }

  last(): LastReload | null {
    return this.#last;
  }

  async reload(request: ReloadRequest): Promise<ReloadOutcome> {
    const { dryRun = false, layers } = request;
    if (dryRun) return outcomeOf('dryRun', (await this.#plan(layers?.files)).differences);
    if (this.#running) throw problem('conflict', 'Another reload runs at this moment.');
    this.#running = true;
    try {
      const plan = await this.#plan(layers?.files);
      await this.#swap(plan, layers);
      await this.#deps.tracker.remember();
      const failed = this.#deps
        .plugins()
        .current.failed.map(({ name, why }) => ({ plugin: name, why: redactText(why) }));
      const differences = plan.differences.filter(
        ({ key }) => !failed.some(({ plugin }) => key === `sitePlugins.${plugin}`),
      );
      const outcome = outcomeOf(
        differences.some(({ restart }) => !restart) ? 'reloaded' : 'unchanged',
        differences,
        failed,
      );
      this.#recordSuccess(request, outcome);
      return outcome;
    } catch (error) {
      this.#recordRefusal(request, error);
      throw error;
    } finally {
      this.#running = false;
    }
  }

  async #plan(layers: readonly LayerFile[] | undefined): Promise<Plan> {
    const { live } = this.#deps;
    const next = await this.#deps.load(layers).catch((error: unknown) => {
      throw asInvalidProblem(error, '');
    });
    const http = effectiveHttpSettings(live.started, next);
    checked('http.access', () => new AccessRules(http.access));
    const views = checked('http.viewOverrides', () => this.#deps.http.viewOverrides(http.viewOverrides));
    const accounts = await this.#deps.accounts.prepare(http.accounts).catch((error: unknown) => {
      throw asInvalidProblem(error, 'http.accounts');
    });
    checked('http.accounts', () => requireAccountForRemoteBind(http, accounts.chosen));
    const smtp = checked('smtp.listeners', () => this.#deps.smtp.prepare(next.settings.smtp, next.domains));
    const plugins = this.#deps.plugins().differences(next);
    const differences = live.differences(next);
    return {
      next,
      smtp,
      accounts,
      views,
      differences: [...plugins, ...renewedCertificates(smtp, next, differences), ...differences],
    };
  }

  /** Steps that cannot fail come last, synchronously. */
  async #swap({ next, smtp, accounts, views }: Plan, layers: ReloadRequest['layers']): Promise<void> {
    const { live, http } = this.#deps;
    const plugins = this.#deps.plugins();
    const old = live.current;
    const undo: Undo[] = [];
    try {
      await smtp.open();
      undo.push(() => smtp.abandon());
      live.use(next);
      undo.push(() => live.use(old));
      const change = await plugins.reload(next, () => live.use(old));
      undo.push(() => change.undo());
      undo.push(() => live.notifyRollback());
      await live.notify();
      if (layers !== undefined) undo.push(await layers.keep());
      undo.push(accounts.commit());
      undo.push(views());
      undo.push(() =>
        http.reconfigure(effectiveHttpSettings(live.started, old), old.settings.smtp.limits.messageBytes),
      );
      http.reconfigure(effectiveHttpSettings(live.started, next), next.settings.smtp.limits.messageBytes);
      smtp.commit();
      change.commit();
    } catch (error) {
      await this.#rollback(undo);
      throw isProblem(error) && error.problem === 'invalid' ? error : swapRefusal(error);
    }
  }

  /** Rolls back in forward order: the old values first, since the other steps read them. */
  async #rollback(undo: readonly Undo[]): Promise<void> {
    for (const step of undo) {
      try {
        await step();
      } catch (error) {
        this.#deps.log.error({ err: error }, 'a part of the server could not be rolled back');
      }
    }
  }

  #recordSuccess(request: ReloadRequest, { changed, restartRequired, failed }: ReloadOutcome): void {
    const { by } = request;
    this.#last = { at: this.#now(), by, refused: null };
    const requestId = this.#writeAudit(request, 200, { changed, restartRequired });
    this.#deps.log.info({ by, changed, restartRequired, failed, requestId }, 'the configuration was reloaded');
  }

  #recordRefusal(request: ReloadRequest, error: unknown): void {
    const { by } = request;
    const why = redactText(isProblem(error) ? error.message : 'It failed; the log says why.');
    this.#last = { at: this.#now(), by, refused: why };
    const requestId = this.#writeAudit(request, isProblem(error) ? classOf(error).http : 500, { refused: why });
    this.#deps.log.warn({ by, err: error, requestId }, 'a reload was refused; nothing has changed');
  }

  /** Writes the audit line of a reload that did not come over HTTP; the log has the same id. */
  #writeAudit({ by, unasked }: ReloadRequest, status: number, selector: object): string | undefined {
    if (unasked !== true) return undefined;
    const requestId = randomUUID();
    const at = this.#now();
    const what = { method: 'LOCAL', route: '/config/reload', params: {}, status, action: 'config.reload', selector };
    this.#deps.audit.write(JSON.stringify({ at, by, from: 'this server', requestId, ...what }));
    return requestId;
  }

  #now(): string {
    return new Date(this.#deps.clock.now()).toISOString();
  }
}

/** A certificate renewed under its old name is a change without a key. */
function renewedCertificates(
  smtp: PreparedSettings,
  next: LoadedConfiguration,
  differences: readonly Difference[],
): readonly Difference[] {
  const known = new Set(differences.map(({ key }) => key));
  const { listeners } = next.settings.smtp;
  return smtp.renewed
    .map((name) => `smtp.listeners.${listeners.findIndex((listener) => listener.name === name)}.cert`)
    .filter((key) => !known.has(key))
    .map((key) => ({ key, before: 'as it was read', after: 'as the file is now', restart: false }));
}

function outcomeOf(
  status: ReloadOutcome['status'],
  differences: readonly Difference[],
  failed: ReloadOutcome['failed'] = [],
): ReloadOutcome {
  const keys = (restart: boolean) => differences.filter((one) => one.restart === restart).map(({ key }) => key);
  return { status, changed: keys(false), restartRequired: keys(true), differences, failed };
}

function checked<T>(key: string, check: () => T): T {
  try {
    return check();
  } catch (error) {
    throw asInvalidProblem(error, key);
  }
}

/** What stops a start stops a reload, with the same sentences. */
function asInvalidProblem(error: unknown, key: string): unknown {
  if (!isStartError(error)) return error;
  const errors = invalidPlacesOf(error, key).map(({ pointer, message }) => ({ pointer, message: redactText(message) }));
  const [first] = errors;
  const more = errors.length > 1 ? ` (and ${errors.length - 1} more)` : '';
  return problem('invalid', { detail: `${first?.message ?? ''}${more}`, errors, cause: error });
}

/** A part that passed the check and failed in the swap. */
function swapRefusal(cause: unknown): unknown {
  if (!isProblem(cause) && !isStartError(cause)) return cause;
  return problem('invalid', { detail: cause.message, errors: [{ pointer: '', message: cause.message }], cause });
}
