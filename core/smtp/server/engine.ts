import type { Socket } from 'node:net';
import type { Clock } from '../../clock.js';
import type { Spool } from '../../spool/spool.js';
import type { HealthCheck } from '../../host/health.js';
import type { InheritedSockets } from '../../net/inherited-sockets.js';
import type { Log } from '../../log/log.js';
import type { PluginContext } from '../../plugin.js';
import { ClientLimits } from './limits.js';
import type { ChainSource } from './listener-ground.js';
import { Listener } from './listener.js';
import { EngineMetrics } from './listener-meter.js';
import type { ListenerSettings } from './listener-options.js';
import { ListenerSet } from './listener-set.js';
import type { SmtpSettings } from './options.js';
import { SettingsInForce } from './settings-in-force.js';
import type { TlsMaterial } from '../../net/tls-material.js';

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
  /** For listeners that name one. */
  readonly sockets?: InheritedSockets;
  /** Between two looks at the deadlines of the sessions, in milliseconds. */
  readonly sweepMs?: number;
}

/** Settings that can be put into force without fail. */
export interface PreparedSettings {
  /** Listeners that get another key or certificate than they have. */
  readonly renewed: readonly string[];
  /** Opens the doors of new listeners; nobody is let in yet. Throws a start error, and then all is as it was. */
  open(): Promise<void>;
  /** After `open`: everything new is in force, open sessions go on to their end. */
  commit(): void;
  /** After `open`: closes again what it opened. */
  abandon(): Promise<void>;
}

export interface SmtpEngine {
  /** Opens all listeners or none. Throws a start error. */
  listen(): Promise<void>;
  addresses(): readonly { readonly name: string; readonly host: string; readonly port: number }[];
  /** Takes a connection that came in elsewhere, as if it were the listener's own. Throws for a name that no listener has. */
  take(listener: string, socket: Socket): void;
  /** Stops accepting; idle sessions end at once, transactions may take `graceMs`. */
  close(graceMs: number): Promise<void>;
  /** Puts new limits, listeners and certificates into force. Throws a start error, and then changes nothing. */
  reconfigure(settings: SmtpSettings): Promise<void>;
  /** The first step of `reconfigure`: reads and checks everything, changes nothing. Throws a start error. */
  prepare(settings: SmtpSettings, domains?: readonly string[]): PreparedSettings;
}

/** Throws a start error when a key or certificate cannot be used. */
export function createSmtpEngine(input: SmtpEngineInput): SmtpEngine {
  const { hostname, spool, pipeline, log, clock, folder = '.', sweepMs = 1000 } = input;
  const metrics = new EngineMetrics(input.metrics);
  const clients = new ClientLimits(input.settings.limits, clock);
  const inForce = new SettingsInForce(input.settings, { folder, domains: input.domains ?? [] });

  const make =
    (materialOf: (name: string) => TlsMaterial | undefined) =>
    (listener: ListenerSettings): Listener => {
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
      return new Listener({ ground, material: materialOf(listener.name), clients, sweepMs });
    };

  const listeners = new ListenerSet(input.settings.listeners, {
    ...input,
    make: make((name) => inForce.material(name)),
  });

  function prepare(settings: SmtpSettings, domains?: readonly string[]): PreparedSettings {
    const next = inForce.read(settings, domains);
    const renewed = inForce.renewed(next);
    const change = listeners.prepare(
      settings.listeners,
      make((name) => next.materials.get(name)),
    );
    return {
      renewed,
      open: () => change.open(),
      abandon: () => change.abandon(),
      commit: () => {
        inForce.take(next);
        clients.reconfigure(settings.limits);
        change.commit();
        for (const name of renewed) {
          const material = next.materials.get(name);
          if (material !== undefined) listeners.find(name)?.renew(material);
        }
      },
    };
  }

  return {
    listen: () => listeners.listen(),
    addresses: () => listeners.addresses(),
    take: (name, socket) => {
      const listener = listeners.find(name);
      if (listener === undefined) throw new Error(`there is no SMTP listener ${name}`);
      listener.take(socket);
    },
    close: (graceMs) => listeners.close(graceMs),
    prepare,
    reconfigure: async (settings) => {
      const prepared = prepare(settings);
      await prepared.open();
      prepared.commit();
    },
  };
}
