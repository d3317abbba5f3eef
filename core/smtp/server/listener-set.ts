import { isDeepStrictEqual } from 'node:util';
import type { HealthCheck, HealthReport } from '../../host/health.js';
import { InheritedSockets } from '../../net/inherited-sockets.js';
import type { Log } from '../../log/log.js';
import { startError } from '../../problem.js';
import { Door, isInherited, isTaken, placeOf } from './door.js';
import type { Listener } from './listener.js';
import { takesNoMail, type ListenerSettings } from './listener-options.js';
import { placeText, sharedPlaces } from '../../net/shared-place.js';

type Make = (settings: ListenerSettings) => Listener;

export interface ListenerSetInput {
  /** Makes what is behind a door, for the first settings. */
  readonly make: Make;
  readonly log: Log;
  /** None if absent. */
  readonly sockets?: InheritedSockets | undefined;
  readonly health: { check(plugin: string, component: string, check: HealthCheck): () => void };
}

/** Other listeners, ready to take the place of those that are open. */
export interface ListenerChange {
  /** Opens the doors that are new; who comes in there waits. Throws a start error, and then all is as it was. */
  open(): Promise<void>;
  /** Lets new connections go to the new listeners. Sessions stay where they are, to their end. Cannot fail. */
  commit(): void;
  /** Closes what `open` has opened. */
  abandon(): Promise<void>;
}

interface Entry {
  readonly listener: Listener;
  readonly door: Door;
}

/** From the listeners that are open to others. */
interface Turn {
  readonly entries: readonly Entry[];
  readonly fresh: readonly Door[];
  readonly leaving: readonly Door[];
  /** Those of `leaving` that were closed already, because they stood in the way. */
  readonly displaced: Door[];
}

/** The listeners of the server, behind their doors; they can be exchanged while sessions go on. */
export class ListenerSet {
  readonly #input: ListenerSetInput;
  readonly #retired = new Set<Listener>();
  readonly #checks = new Map<string, () => void>();
  #entries: readonly Entry[];
  #closing = false;

  constructor(settings: readonly ListenerSettings[], input: ListenerSetInput) {
    this.#input = input;
    refuseSharedPlaces(settings);
    this.#entries = settings.map((one) => ({ listener: input.make(one), door: this.#doorFor(one) }));
    this.#show();
  }

  /** Opens all or none. Throws a start error. */
  async listen(): Promise<void> {
    try {
      await Promise.all(this.#entries.filter(({ door }) => !door.listening).map(({ door }) => door.listen()));
    } catch (error) {
      await this.close(0);
      throw error;
    }
    for (const entry of this.#entries) lead(entry);
  }

  /** In the order of the configuration. */
  addresses(): readonly { readonly name: string; readonly host: string; readonly port: number }[] {
    return this.#entries.map(({ listener, door }) => ({ name: listener.settings.name, ...door.address() }));
  }

  find(name: string): Listener | undefined {
    return this.#entries.find(({ listener }) => listener.settings.name === name)?.listener;
  }

  async close(graceMs: number): Promise<void> {
    this.#closing = true;
    for (const { door } of this.#entries) door.close();
    const all = [...this.#entries.map(({ listener }) => listener), ...this.#retired];
    await Promise.all(all.map((listener) => listener.close(graceMs)));
    for (const forget of this.#checks.values()) forget();
    this.#checks.clear();
  }

  /** Changes nothing. Throws a start error when the listeners cannot stand beside each other. */
  prepare(settings: readonly ListenerSettings[], make: Make): ListenerChange {
    refuseSharedPlaces(settings);
    for (const one of settings) if (isInherited(one) && this.#doorAt(one) === undefined) throw tooLateFor(one);
    let turn: Turn | undefined;
    return {
      open: async () => {
        turn = this.#turnTo(settings, make);
        await this.#open(turn);
      },
      commit: () => turn && this.#take(turn),
      abandon: async () => turn && this.#abandon(turn),
    };
  }

  #turnTo(settings: readonly ListenerSettings[], make: Make): Turn {
    const entries = settings.map((one) => this.#entryFor(one, make));
    const old = this.#entries.map(({ door }) => door);
    return {
      entries,
      fresh: entries.map(({ door }) => door).filter((door) => !old.includes(door)),
      leaving: old.filter((door) => !entries.some((entry) => entry.door === door)),
      displaced: [],
    };
  }

  async #open(turn: Turn): Promise<void> {
    try {
      for (const door of turn.fresh) turn.displaced.push(...(await openBeside(door, turn.leaving)));
      if (this.#closing) throw startError('The server is stopping.');
    } catch (error) {
      await this.#abandon(turn);
      throw error;
    }
  }

  async #abandon({ fresh, displaced }: Turn): Promise<void> {
    for (const door of fresh) door.close();
    for (const door of displaced.splice(0)) await this.#reopen(door);
  }

  /** The one that is open if nothing but its certificate changes, else a new one, behind the old door if that stays. */
  #entryFor(settings: ListenerSettings, make: Make): Entry {
    const same = this.#entries.find(({ listener }) => isSame(listener.settings, settings));
    if (same !== undefined) return same;
    const door = this.#doorAt(settings);
    return { listener: make(settings), door: door ?? this.#doorFor(settings) };
  }

  #take({ entries, leaving }: Turn): void {
    const stays = new Set(entries.map(({ listener }) => listener));
    const old = this.#entries;
    this.#entries = entries;
    for (const entry of entries) if (!old.includes(entry)) lead(entry);
    // Who has just come in is still accepted.
    setImmediate(() => {
      for (const door of leaving) door.close();
    });
    for (const { listener } of old) if (!stays.has(listener)) this.#retire(listener);
    this.#show();
    // Told to stop in the middle: the new ones go the way of the others.
    if (this.#closing) void this.close(0);
  }

  #retire(listener: Listener): void {
    this.#retired.add(listener);
    listener.retire(() => this.#retired.delete(listener));
  }

  async #reopen(door: Door): Promise<void> {
    try {
      await door.listen();
    } catch (error) {
      this.#input.log.error({ err: error, place: door.place }, 'a listener could not be opened again');
    }
  }

  #doorFor(settings: ListenerSettings): Door {
    return new Door(settings, this.#input.sockets ?? InheritedSockets.none);
  }

  #doorAt(settings: ListenerSettings): Door | undefined {
    return this.#entries.find(({ door }) => door.place === placeOf(settings))?.door;
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
    if (entry?.door.listening !== true) return { status: 'down', why: 'The listener is not open.' };
    const { open, total } = entry.listener.sessions;
    return { status: 'up', figures: { sessions: open, sessionsTotal: total } };
  }
}

const tooLateFor = (settings: ListenerSettings): Error =>
  startError(
    `SMTP listener ${settings.name}: ${placeOf(settings)} can only be taken when the server starts; restart it.`,
  );

function lead({ listener, door }: Entry): void {
  listener.start();
  door.lead((socket) => listener.take(socket));
}

/**
 * Opens a door. One that is about to close may stand in the way, as 127.0.0.1 does for 0.0.0.0 of the same port: that one is
 * closed first, and returned.
 */
async function openBeside(door: Door, leaving: readonly Door[]): Promise<readonly Door[]> {
  try {
    await door.listen();
    return [];
  } catch (error) {
    const inTheWay = leaving.filter(
      (one) => one.listening && !one.isInherited && one.wantedPort === door.wantedPort && door.wantedPort !== 0,
    );
    if (!isTaken(error) || inTheWay.length === 0) throw error;
    return displace(door, inTheWay);
  }
}

async function displace(door: Door, inTheWay: readonly Door[]): Promise<readonly Door[]> {
  for (const one of inTheWay) one.close();
  try {
    await door.listen();
    return inTheWay;
  } catch (error) {
    for (const one of inTheWay) await one.listen();
    throw error;
  }
}

/** Key and certificate change behind the door, without another listener. */
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
