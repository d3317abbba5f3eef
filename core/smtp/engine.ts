import type { Clock } from '../clock.js';
import type { Spool } from '../disk/spool.js';
import type { HealthCheck } from '../health.js';
import type { Log } from '../log.js';
import type { PluginContext } from '../plugin.js';
import { ClientLimits } from './limits.js';
import type { ChainSource } from './listener-ground.js';
import { Listener } from './listener.js';
import { EngineMetrics } from './listener-meter.js';
import { takesNoMail } from './listener-options.js';
import type { SmtpSettings } from './options.js';
import { SettingsInForce, type PreparedSettings } from './settings-in-force.js';

export interface SmtpEngineInput {
  readonly settings: SmtpSettings;
  /** In the greeting and in `Received`. */
  readonly hostname: string;
  /** Local domains; mail for `<postmaster>` goes to the first. */
  readonly domains?: readonly string[];
  /** What relative paths of keys and certificates are relative to; the working folder if absent. */
  readonly folder?: string;
  readonly spool: Spool;
  readonly pipeline: ChainSource;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: PluginContext['metrics'];
  readonly health: { check(plugin: string, component: string, check: HealthCheck): () => void };
  /** Between two looks at the deadlines of the sessions, in milliseconds. */
  readonly sweepMs?: number;
}

export interface SmtpEngine {
  /** Opens all listeners or none. Throws a start error. */
  listen(): Promise<void>;
  addresses(): readonly { readonly name: string; readonly host: string; readonly port: number }[];
  /** Stops accepting; idle sessions end at once, transactions may take `graceMs`. */
  close(graceMs: number): Promise<void>;
  /** Puts new limits and certificates into force. Throws a start error, and changes nothing, when listeners differ. */
  reconfigure(settings: SmtpSettings): void;
  /** The first half of `reconfigure`: reads and checks everything, changes nothing. */
  prepare(settings: SmtpSettings, domains?: readonly string[]): PreparedSettings;
}

/** Throws a start error when a key or certificate cannot be used. */
export function createSmtpEngine(input: SmtpEngineInput): SmtpEngine {
  const { hostname, spool, pipeline, log, clock, health, folder = '.', sweepMs = 1000 } = input;
  const metrics = new EngineMetrics(input.metrics);
  const clients = new ClientLimits(input.settings.limits, clock);
  const inForce = new SettingsInForce(input.settings, { folder, domains: input.domains ?? [] });

  const listeners = input.settings.listeners.map((listener) => {
    const ground = {
      listener,
      hostname,
      postmasterDomain: () => inForce.postmasterDomain,
      spool,
      pipeline,
      clock,
      log,
      meter: metrics.meter(listener.name),
      throttle: clients,
      settings: () => inForce.settings,
    };
    return new Listener({ ground, material: inForce.material(listener.name), clients, sweepMs });
  });
  const forget = listeners.map((listener) =>
    health.check('smtp', `listener ${listener.settings.name}`, () => listener.health()),
  );

  for (const { name } of input.settings.listeners.filter(takesNoMail)) {
    log.warn({ listener: name }, 'nobody can sign in on this submission listener: give it tls, or allowPlaintextAuth');
  }

  async function close(graceMs: number): Promise<void> {
    await Promise.all(listeners.map((listener) => listener.close(graceMs)));
    for (const undo of forget) undo();
  }

  return {
    listen: async () => {
      try {
        await Promise.all(listeners.map((listener) => listener.listen()));
      } catch (error) {
        await close(0);
        throw error;
      }
    },
    addresses: () => listeners.map((listener) => listener.address()),
    close,
    prepare: (next, domains) => inForce.prepare(next, domains, { listeners, clients }),
    reconfigure: (next) => void inForce.prepare(next, undefined, { listeners, clients }).commit(),
  };
}
