import type { Socket } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { Clock } from '../../clock.js';
import type { SignInAttempt, SignInHistory } from '../../contracts/sign-in-history.js';
import type { HealthCheck, HealthReport } from '../../contracts/health.js';
import type { Log } from '../../log/log.js';
import { type Domain, parseDomain } from '../../mime/address.js';
import { InheritedSockets } from '../../net/inherited-sockets.js';
import { placeText, sharedPlaces } from '../../net/listening-place.js';
import { readTlsMaterial, type TlsMaterial, usesServerCertificate } from '../../net/tls-material.js';
import type { ServerCertificate } from '../../net/server-certificate.js';
import type { AttemptLimits } from '../../contracts/cluster.js';
import type { PluginContext } from '../../plugin.js';
import { startError } from '../../problem.js';
import type { Spool } from '../../spool/spool.js';
import { ClientLimits, LimitOptions } from './limits.js';
import { ListenerOptions, type ListenerSettings, takesNoMail } from './listener-options.js';
import type { PipelineSource } from './listener-context.js';
import { ListeningSocket, isInherited, isTaken, Listener, placeOf } from './listener.js';
import { EngineMetrics } from './meter.js';

interface SmtpEngineInput {
  readonly settings: SmtpSettings;
  /** Learns of the limit of failed sign-ins. */
  readonly attemptLimits?: Pick<AttemptLimits, 'add'>;
  /** For the greeting and `Received`. */
  readonly hostname: string;
  /** Local domains; mail for `<postmaster>` goes to the first. */
  readonly domains?: readonly string[];
  /** Base of relative paths of keys and certificates; default the working folder. */
  readonly folder?: string;
  readonly spool: Spool;
  readonly pipeline: PipelineSource;
  readonly log: Log;
  /** Learns of attempts to sign in. */
  readonly signIns?: Pick<SignInHistory, 'record'>;
  readonly clock: Clock;
  readonly metrics: PluginContext['metrics'];
  readonly health: { check(plugin: string, component: string, check: HealthCheck): () => void };
  /** For listeners with an inherited socket. */
  readonly sockets?: InheritedSockets;
  /** For listeners with TLS that name neither key nor cert. */
  readonly certificate: ServerCertificate;
  /** Interval of the checks of deadlines, in milliseconds. */
  readonly sweepMs?: number;
}

/** Validated settings, ready to apply without failure. */
export interface PreparedSettings {
  /** Listeners whose key or certificate changed. */
  readonly renewed: readonly string[];
  /** Opens the new sockets without accepting sessions. Throws a start error and then changes nothing. */
  open(): Promise<void>;
  /** After `open`: applies the settings; open sessions drain. */
  commit(): void;
  /** After `open`: closes again what it opened. */
  abandon(): Promise<void>;
}

export interface SmtpEngine {
  /** Opens all listeners or none. Throws a start error. */
  listen(): Promise<void>;
  addresses(): readonly { readonly name: string; readonly host: string; readonly port: number }[];
  /** Takes a connection accepted elsewhere, as if it were the listener's own. Throws for an unknown listener. */
  take(listener: string, socket: Socket): void;
  /** Stops accepting; idle sessions end at once, transactions may take `graceMs`. */
  close(graceMs: number): Promise<void>;
  /** Applies new limits, listeners and certificates. Throws a start error and then changes nothing. */
  reconfigure(settings: SmtpSettings): Promise<void>;
  /** First step of `reconfigure`: reads and checks everything, changes nothing. Throws a start error. */
  prepare(settings: SmtpSettings, domains?: readonly string[]): PreparedSettings;
}

/** Throws a start error when a key or certificate cannot be used. */
export function createSmtpEngine(input: SmtpEngineInput): SmtpEngine {
  const { hostname, spool, pipeline, log, clock, folder = '.', sweepMs = 1000 } = input;
  const shared = { hostname, spool, pipeline, clock, log };
  const metrics = new EngineMetrics(input.metrics);
  const clients = new ClientLimits(input.settings.limits, clock, input.attemptLimits);
  const inForce = new ActiveSettings(input.settings, { ...input, folder, domains: input.domains ?? [] });

  const make =
    (materialOf: (name: string) => TlsMaterial | undefined) =>
    (listener: ListenerSettings): Listener => {
      const context = {
        listener,
        ...shared,
        postmasterDomain: () => inForce.postmasterDomain,
        meter: metrics.meter(listener.name),
        throttle: clients,
        settings: () => inForce.settings,
        record: (attempt: SignInAttempt) => input.signIns?.record(attempt),
      };
      return new Listener({ context, material: materialOf(listener.name), clients, sweepMs });
    };

  const listeners = new ListenerSet(input.settings.listeners, {
    ...input,
    make: make((name) => inForce.material(name)),
    materialOf: (name) => inForce.material(name),
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
        inForce.replace(next);
        clients.reconfigure(settings.limits);
        change.commit();
        for (const name of renewed) {
          const material = next.materials.get(name);
          if (material !== undefined) listeners.find(name)?.renew(material);
        }
      },
    };
  }

  input.certificate.watch((material) => inForce.takeServerCertificate(material, listeners));

  return {
    listen: () => listeners.listen(),
    addresses: () => listeners.addresses(),
    take: (name, socket) => {
      const listener = listeners.find(name);
      if (listener === undefined) throw new Error(`there is no SMTP listener ${name}`);
      listener.accept(socket);
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

type Make = (settings: ListenerSettings) => Listener;

interface ListenerSetInput {
  /** Creates a listener for a socket, with the first settings. */
  readonly make: Make;
  readonly materialOf: (name: string) => TlsMaterial | undefined;
  readonly clock: Clock;
  readonly log: Log;
  /** None if absent. */
  readonly sockets?: InheritedSockets | undefined;
  readonly health: { check(plugin: string, component: string, check: HealthCheck): () => void };
  readonly certificate: Pick<ServerCertificate, 'isIssued'>;
}

const dayMs = 86_400_000;
/**
 * A certificate degrades health in its last week, or in the last sixth of a shorter life: what should have renewed it by
 * then has failed.
 */
const maxNoticeMs = 7 * dayMs;

/** New listeners, ready to replace the open ones. */
interface ListenerChange {
  /** Opens the new sockets; connections wait. Throws a start error and then changes nothing. */
  open(): Promise<void>;
  /** Routes new connections to the new listeners. Existing sessions drain. Cannot fail. */
  commit(): void;
  /** Closes what `open` has opened. */
  abandon(): Promise<void>;
}

interface Entry {
  readonly listener: Listener;
  readonly socket: ListeningSocket;
}

/** The change from the current listeners to new ones. */
interface ListenerPlan {
  readonly entries: readonly Entry[];
  readonly fresh: readonly ListeningSocket[];
  readonly leaving: readonly ListeningSocket[];
  /** Those of `leaving` that had to be closed already, to free their address. */
  readonly displaced: ListeningSocket[];
}

/** The listeners of the server with their sockets; exchangeable while sessions run. */
class ListenerSet {
  readonly #input: ListenerSetInput;
  readonly #retired = new Set<Listener>();
  readonly #checks = new Map<string, () => void>();
  #entries: readonly Entry[];
  #closing = false;

  constructor(settings: readonly ListenerSettings[], input: ListenerSetInput) {
    this.#input = input;
    refuseSharedPlaces(settings);
    this.#entries = settings.map((one) => ({ listener: input.make(one), socket: this.#newSocketFor(one) }));
    this.#show();
  }

  /** Opens all or none. Throws a start error. */
  async listen(): Promise<void> {
    try {
      await Promise.all(this.#entries.filter(({ socket }) => !socket.listening).map(({ socket }) => socket.listen()));
    } catch (error) {
      await this.close(0);
      throw error;
    }
    for (const entry of this.#entries) attach(entry);
  }

  /** In the order of the configuration. */
  addresses(): readonly { readonly name: string; readonly host: string; readonly port: number }[] {
    return this.#entries.map(({ listener, socket }) => ({ name: listener.settings.name, ...socket.address() }));
  }

  find(name: string): Listener | undefined {
    return this.#entries.find(({ listener }) => listener.settings.name === name)?.listener;
  }

  async close(graceMs: number): Promise<void> {
    this.#closing = true;
    for (const { socket } of this.#entries) socket.close();
    const all = [...this.#entries.map(({ listener }) => listener), ...this.#retired];
    await Promise.all(all.map((listener) => listener.close(graceMs)));
    for (const forget of this.#checks.values()) forget();
    this.#checks.clear();
  }

  /** Changes nothing. Throws a start error when the listeners conflict. */
  prepare(settings: readonly ListenerSettings[], make: Make): ListenerChange {
    refuseSharedPlaces(settings);
    for (const one of settings) if (isInherited(one) && this.#openSocketAt(one) === undefined) throw tooLateFor(one);
    let plan: ListenerPlan | undefined;
    return {
      open: async () => {
        plan = this.#planFor(settings, make);
        await this.#open(plan);
      },
      commit: () => plan && this.#apply(plan),
      abandon: async () => plan && this.#abandon(plan),
    };
  }

  #planFor(settings: readonly ListenerSettings[], make: Make): ListenerPlan {
    const entries = settings.map((one) => this.#entryFor(one, make));
    const old = this.#entries.map(({ socket }) => socket);
    return {
      entries,
      fresh: entries.map(({ socket }) => socket).filter((socket) => !old.includes(socket)),
      leaving: old.filter((socket) => !entries.some((entry) => entry.socket === socket)),
      displaced: [],
    };
  }

  async #open(plan: ListenerPlan): Promise<void> {
    try {
      for (const socket of plan.fresh) plan.displaced.push(...(await openBeside(socket, plan.leaving)));
      if (this.#closing) throw startError('The server is stopping.');
    } catch (error) {
      await this.#abandon(plan);
      throw error;
    }
  }

  async #abandon({ fresh, displaced }: ListenerPlan): Promise<void> {
    for (const socket of fresh) socket.close();
    for (const socket of displaced.splice(0)) await this.#reopen(socket);
  }

  /** The current listener if only its certificate changes, else a new one, on the same socket if that stays. */
  #entryFor(settings: ListenerSettings, make: Make): Entry {
    const same = this.#entries.find(({ listener }) => isSame(listener.settings, settings));
    if (same !== undefined) return same;
    const socket = this.#openSocketAt(settings);
    return { listener: make(settings), socket: socket ?? this.#newSocketFor(settings) };
  }

  #apply({ entries, leaving }: ListenerPlan): void {
    const stays = new Set(entries.map(({ listener }) => listener));
    const old = this.#entries;
    this.#entries = entries;
    for (const entry of entries) if (!old.includes(entry)) attach(entry);
    // Connections accepted a moment ago are still served.
    setImmediate(() => {
      for (const socket of leaving) socket.close();
    });
    for (const { listener } of old) if (!stays.has(listener)) this.#retire(listener);
    this.#show();
    // Closed during a change: the new listeners close as well.
    if (this.#closing) void this.close(0);
  }

  #retire(listener: Listener): void {
    this.#retired.add(listener);
    listener.retire(() => this.#retired.delete(listener));
  }

  async #reopen(socket: ListeningSocket): Promise<void> {
    try {
      await socket.listen();
    } catch (error) {
      this.#input.log.error({ err: error, place: socket.place }, 'a listener could not be opened again');
    }
  }

  #newSocketFor(settings: ListenerSettings): ListeningSocket {
    return new ListeningSocket(settings, this.#input.sockets ?? InheritedSockets.none);
  }

  #openSocketAt(settings: ListenerSettings): ListeningSocket | undefined {
    return this.#entries.find(({ socket }) => socket.place === placeOf(settings))?.socket;
  }

  /** One line of health for each name. */
  #show(): void {
    const names = new Set(this.#entries.map(({ listener }) => listener.settings.name));
    for (const [name, forget] of this.#checks) {
      if (names.has(name)) continue;
      forget();
      this.#checks.delete(name);
    }
    for (const { listener } of this.#entries) {
      const { name } = listener.settings;
      if (this.#checks.has(name)) continue;
      this.#checks.set(
        name,
        this.#input.health.check('smtp', `listener ${name}`, () => this.#healthOf(name)),
      );
      if (!takesNoMail(listener.settings)) continue;
      const sentence = 'nobody can sign in on this submission listener: give it tls, or allowPlaintextAuth';
      this.#input.log.warn({ listener: name }, sentence);
    }
  }

  #healthOf(name: string): HealthReport {
    const entry = this.#entries.find(({ listener }) => listener.settings.name === name);
    if (this.#closing) return { status: 'down', why: 'The listener is shutting down.' };
    if (entry?.socket.listening !== true) return { status: 'down', why: 'The listener is not open.' };
    const { open, total } = entry.listener.sessions;
    const figures = { sessions: open, sessionsTotal: total };
    const material = this.#input.materialOf(name);
    if (material === undefined) return { status: 'up', figures };
    const { validFrom, validTo } = material;
    const left = validTo - this.#input.clock.now();
    const report = { figures: { ...figures, certificateDays: Math.floor(left / dayMs) } };
    if (usesServerCertificate(entry.listener.settings) && !this.#input.certificate.isIssued) {
      return { status: 'degraded', why: selfSignedSentence, ...report };
    }
    if (left >= Math.min(maxNoticeMs, (validTo - validFrom) / 6)) return { status: 'up', ...report };
    const day = new Date(validTo).toISOString().slice(0, 10);
    return {
      status: 'degraded',
      why: `Its certificate ${left < 0 ? 'expired' : 'expires'} on ${day}: renew it, then reload.`,
      ...report,
    };
  }
}

const selfSignedSentence =
  'Its certificate is self-signed, because the server has no other: set up ACME, or name key and cert.';

const tooLateFor = (settings: ListenerSettings): Error =>
  startError(
    `SMTP listener ${settings.name}: ${placeOf(settings)} can only be taken when the server starts; restart it.`,
  );

function attach({ listener, socket }: Entry): void {
  listener.start();
  socket.passTo((socket) => listener.accept(socket));
}

/**
 * Opens a socket. One about to close may block it, as 127.0.0.1 does for 0.0.0.0 of the same port: it is closed first,
 * and returned.
 */
async function openBeside(
  socket: ListeningSocket,
  leaving: readonly ListeningSocket[],
): Promise<readonly ListeningSocket[]> {
  try {
    await socket.listen();
    return [];
  } catch (error) {
    const inTheWay = leaving.filter(
      (one) => one.listening && !one.isInherited && one.wantedPort === socket.wantedPort && socket.wantedPort !== 0,
    );
    if (!isTaken(error) || inTheWay.length === 0) throw error;
    return displace(socket, inTheWay);
  }
}

async function displace(
  socket: ListeningSocket,
  inTheWay: readonly ListeningSocket[],
): Promise<readonly ListeningSocket[]> {
  for (const one of inTheWay) one.close();
  try {
    await socket.listen();
    return inTheWay;
  } catch (error) {
    for (const one of inTheWay) await one.listen();
    throw error;
  }
}

/** Replaces key and certificate without replacing the listener. */
function isSame(old: ListenerSettings, now: ListenerSettings): boolean {
  const { key: _key, cert: _cert, ...rest } = old;
  const { key: _nextKey, cert: _nextCert, ...others } = now;
  return isDeepStrictEqual(rest, others);
}

function refuseSharedPlaces(settings: readonly ListenerSettings[]): void {
  for (const [taken, again] of sharedPlaces(settings)) {
    throw startError(
      `SMTP listener ${again.name} cannot listen on ${placeText(again)}: the listener ${taken.name} does.`,
    );
  }
}

/** Settings with the content of their files. */
interface ReadSettings {
  readonly settings: SmtpSettings;
  readonly domains: readonly string[];
  /** Where mail for `<postmaster>` goes (RFC 5321 §4.5.1). */
  readonly postmasterDomain: Domain | undefined;
  /** By the name of the listener. */
  readonly materials: ReadonlyMap<string, TlsMaterial | undefined>;
}

/** The settings that sessions read for each command, with keys and certificates as read from their files. */
class ActiveSettings {
  readonly #folder: string;
  readonly #certificate: ServerCertificate;
  #state: ReadSettings;

  /** Throws a start error when a key or certificate cannot be used. */
  constructor(
    settings: SmtpSettings,
    given: Pick<SmtpEngineInput, 'certificate'> & { readonly folder: string; readonly domains: readonly string[] },
  ) {
    this.#folder = given.folder;
    this.#certificate = given.certificate;
    this.#state = this.#readAll(settings, given.domains);
  }

  get settings(): SmtpSettings {
    return this.#state.settings;
  }

  get postmasterDomain(): Domain | undefined {
    return this.#state.postmasterDomain;
  }

  /** Reads and checks everything, and changes nothing. Throws a start error. */
  read(settings: SmtpSettings, domains = this.#state.domains): ReadSettings {
    return this.#readAll(settings, domains);
  }

  replace(next: ReadSettings): void {
    this.#state = next;
  }

  material(listener: string): TlsMaterial | undefined {
    return this.#state.materials.get(listener);
  }

  /** For the listeners that use it. */
  takeServerCertificate(material: TlsMaterial, listeners: Pick<ListenerSet, 'find'>): void {
    const names = this.#state.settings.listeners.filter(usesServerCertificate).map(({ name }) => name);
    const materials = new Map([...this.#state.materials, ...names.map((name) => [name, material] as const)]);
    this.#state = { ...this.#state, materials };
    for (const name of names) listeners.find(name)?.renew(material);
  }

  /** TLS listeners whose key or certificate changed. */
  renewed(next: ReadSettings): readonly string[] {
    return [...next.materials.keys()].filter((name) => {
      const [old, now] = [this.material(name), next.materials.get(name)];
      return old !== undefined && now !== undefined && !isDeepStrictEqual(old, now);
    });
  }

  #readAll(settings: SmtpSettings, domains: readonly string[]): ReadSettings {
    const [first] = domains;
    return {
      settings,
      domains,
      postmasterDomain: first === undefined ? undefined : parseDomain(first),
      materials: new Map(
        settings.listeners.map((one) => [one.name, readTlsMaterial(one, this.#folder, this.#certificate.material)]),
      ),
    };
  }
}

/** Settings of receiving. */
export const SmtpOptions = z.strictObject({
  listeners: z
    .array(ListenerOptions)
    .min(1, 'name at least one listener, for example [{ mode: "mx", port: 2525 }]')
    .prefault([{ mode: 'mx' }])
    .transform(withDistinctNames)
    .describe('Where mail comes in.'),
  limits: LimitOptions.prefault({}).describe('Bounds of sessions and messages.'),
  relayNetworks: z
    .array(z.string().min(1))
    .default([])
    .describe('Networks whose mail is relayed without signing in: ["192.0.2.0/24", "2001:db8::/32"].')
    .meta({ examples: [['192.0.2.0/24', '2001:db8::/32']] }),
  lineEndings: z
    .enum(['normalise', 'reject'])
    .default('normalise')
    .describe('A bare CR or LF in a message becomes CRLF, or makes the message be refused with 554.'),
  longLines: z
    .enum(['encode', 'refuse', 'pass'])
    .default('encode')
    .describe(
      'What becomes of lines over 998 octets in mail of users (RFC 5321 §4.5.3.1.6): their parts are encoded as quoted-printable or base64 and header fields folded, the message is refused with 554, or it is passed on as it is.',
    ),
  shadow: z
    .array(z.string().min(1))
    .default([])
    .describe('Plugins whose hooks are asked, and their verdicts written to the log but not followed.')
    .meta({ examples: [['greylisting']] }),
  earlyData: z
    .enum(['refuse', 'accept'])
    .default('refuse')
    .describe('What to do with a client that sends message text before it was asked to (354).'),
});

export type SmtpSettings = z.output<typeof SmtpOptions>;

/** Listeners of one name would share their metrics and health: the second `mx` becomes `mx-2`. */
function withDistinctNames(listeners: readonly ListenerSettings[]): readonly ListenerSettings[] {
  const taken = new Set<string>();
  return listeners.map((listener) => {
    let { name } = listener;
    for (let number = 2; taken.has(name); number += 1) name = `${listener.name}-${number}`;
    taken.add(name);
    return { ...listener, name };
  });
}
