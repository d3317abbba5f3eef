import { setTimeout as pause } from 'node:timers/promises';
import type { Postgres } from '../support/postgres.js';
import type { NodeProcess } from './node-process.js';

/** Numbers from 0 to below 1 that are the same for the same seed (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface Scene {
  readonly nodes: readonly NodeProcess[];
  readonly postgres: Postgres;
  readonly database: string;
  readonly sessionMs: number;
  readonly random: () => number;
}

type Disturbance<Subject> = (subject: Subject, scene: Scene) => Promise<unknown>;

/** A number of sessions by chance. */
const sessions = ({ random, sessionMs }: Scene, least: number, most: number): Promise<void> =>
  pause(sessionMs * (least + random() * (most - least)));

/** Repeats what a server that is away or recovers does not do yet. */
async function persistently<T>(work: () => Promise<T>): Promise<T> {
  const until = performance.now() + 60_000;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (performance.now() > until) throw error;
      await pause(100);
    }
  }
}

const silence =
  (...directions: readonly ('toServer' | 'toClient')[]): Disturbance<NodeProcess> =>
  async ({ proxy }, scene) => {
    proxy.silence(...directions);
    await sessions(scene, 0.5, 3);
    proxy.heal();
  };

const shiftClock =
  (shiftMs: number): Disturbance<NodeProcess> =>
  async (node, scene) => {
    node.shiftClock(shiftMs);
    await sessions(scene, 1, 3);
    node.shiftClock(0);
  };

const ofNodes: Readonly<Record<string, Disturbance<NodeProcess>>> = {
  kill: async (node, scene) => {
    await node.kill();
    await sessions(scene, 0, 1);
    node.startAgain();
  },
  stop: async (node, scene) => {
    node.signal('SIGSTOP');
    await sessions(scene, 1.6, 3.3);
    node.signal('SIGCONT');
  },
  silent: silence(),
  deaf: silence('toClient'),
  mute: silence('toServer'),
  slow: async ({ proxy }, scene) => {
    proxy.delay(500);
    await sessions(scene, 1, 3);
    proxy.heal();
  },
  terminate: async ({ name }, { postgres }) =>
    persistently(() =>
      postgres.psql(
        `select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'postern/${name}/%'`,
      ),
    ),
  'clock +10 min': shiftClock(600_000),
  'clock -10 min': shiftClock(-600_000),
};

const ofDatabase: Readonly<Record<string, Disturbance<Postgres>>> = {
  'kill -9 of a backend': async (postgres, { database }) => persistently(() => postgres.killBackendProcess(database)),
  'immediate stop': async (postgres, scene) => {
    await postgres.stop('immediate');
    await sessions(scene, 0, 1);
    await postgres.start();
  },
  'read-only': async (postgres, scene) => {
    await persistently(() => postgres.alter('set default_transaction_read_only = on'));
    await sessions(scene, 0.5, 1.5);
    await persistently(() => postgres.alter('reset default_transaction_read_only'));
  },
};

interface Possibility {
  readonly name: string;
  readonly subject: NodeProcess | Postgres;
  readonly act: (scene: Scene) => Promise<unknown>;
}

/** Disturbs a scene by chance, a subject by one thing at a time, and several subjects at once. */
export class Disturbances {
  readonly counts = new Map<string, number>();
  readonly #scene: Scene;
  readonly #running = new Map<NodeProcess | Postgres, Promise<unknown>>();
  readonly #faults: unknown[] = [];

  constructor(scene: Scene) {
    this.#scene = scene;
  }

  /** Begins the next one, as soon as its subject is undisturbed. */
  async next(): Promise<void> {
    const { nodes, postgres, random } = this.#scene;
    const pick = <T>(all: readonly T[]): T => all[Math.floor(random() * all.length)] as T;
    const node = pick(nodes);
    const all: readonly Possibility[] = [
      ...Object.entries(ofNodes).map(([name, act]) => ({ name, subject: node, act: act.bind(null, node) })),
      ...Object.entries(ofDatabase).map(([name, act]) => ({ name, subject: postgres, act: act.bind(null, postgres) })),
    ];
    const { name, subject, act } = pick(all);
    // Chance of its own, so that the next ones do not depend on when it draws.
    const own = { ...this.#scene, random: seeded(random() * 2 ** 32) };
    await this.#running.get(subject);
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
    const run = act(own).catch((error: unknown) => this.#faults.push(error));
    this.#running.set(subject, run);
  }

  /** Waits until nothing is disturbed any more. */
  async end(): Promise<void> {
    await Promise.all(this.#running.values());
    if (this.#faults.length > 0) throw new AggregateError(this.#faults, 'a disturbance failed');
  }
}
