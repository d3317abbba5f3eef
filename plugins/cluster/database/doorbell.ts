import { setTimeout as pause } from 'node:timers/promises';
import type { Log } from '../../../core/log/log.js';
import type { Database } from './database.js';

const channel = 'postern';
/** What is rung within this time goes together. Milliseconds. */
const gatherMs = 50;
/** A note has 8000 bytes at most; beyond this, it says only that there is something. */
const maxBytes = 6000;
const againMs = 1000;
/** A connection that hears nothing for this time is opened anew. Milliseconds. */
const selfMs = 60_000;

interface Note {
  readonly from: string;
  readonly topic: string;
  /** Null: too many to name. */
  readonly names: readonly string[] | null;
}

type Listener = (names: readonly string[] | null) => void;

interface DoorbellInput {
  readonly database: Database;
  readonly node: string;
  readonly log: Log;
}

/** Tells other nodes what there is to do, after a commit. It may be lost. */
export class Doorbell {
  readonly #input: DoorbellInput;
  readonly #listeners = new Map<string, Set<Listener>>();
  readonly #gathered = new Map<string, Set<string>>();
  readonly #stopped = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #hasHeard = false;
  #listening: Promise<void> | undefined;

  constructor(input: DoorbellInput) {
    this.#input = input;
  }

  start(): void {
    this.#listening = this.#listenForever();
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    clearTimeout(this.#timer);
    await this.#listening;
  }

  ring(topic: string, names: readonly string[]): void {
    const gathered = this.#gathered.get(topic) ?? new Set();
    this.#gathered.set(topic, gathered);
    for (const name of names) gathered.add(name);
    this.#timer ??= setTimeout(() => void this.#send(), gatherMs).unref();
  }

  /** Tells this node, too. */
  ringAll(topic: string, names: readonly string[]): void {
    this.ring(topic, names);
    this.#tell({ from: '', topic, names });
  }

  on(topic: string, listener: Listener): () => void {
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }

  async #send(): Promise<void> {
    this.#timer = undefined;
    const { database, node } = this.#input;
    const notes = Array.from(this.#gathered, ([topic, names]): string => {
      const note: Note = { from: node, topic, names: [...names] };
      const text = JSON.stringify(note);
      return Buffer.byteLength(text) <= maxBytes ? text : JSON.stringify({ ...note, names: null });
    });
    this.#gathered.clear();
    // In a separate transaction: a note inside another one would make all writers wait for each other.
    for (const note of notes)
      await database.query('pages', 'select pg_notify($1, $2)', [channel, note]).catch(() => undefined);
  }

  async #listenForever(): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      const ended = new AbortController();
      try {
        await this.#input.database.use('listen', async (client) => {
          client.on('notification', ({ payload }) => this.#hear(payload));
          await client.query(`listen ${channel}`);
          // What was rung meanwhile is lost.
          for (const topic of this.#listeners.keys()) this.#tell({ from: '', topic, names: null });
          const lost = new Promise<never>((_, reject) =>
            client.once('error', reject).once('end', () => reject(new Error('ended'))),
          );
          const stopped = new Promise<void>((resolve) => {
            if (signal.aborted) resolve();
            signal.addEventListener('abort', () => resolve(), { once: true });
          });
          await Promise.race([lost, stopped, this.#hearItself(ended.signal)]);
          throw new Error('the connection is given up');
        });
      } catch {
        await pause(againMs, undefined, { signal, ref: false }).catch(() => undefined);
      } finally {
        ended.abort();
      }
    }
  }

  /** Rejects when its own notes do not come back: a connection may be cut without a sign. */
  async #hearItself(signal: AbortSignal): Promise<never> {
    const { database, node } = this.#input;
    const note: Note = { from: node, topic: '', names: [] };
    for (;;) {
      this.#hasHeard = false;
      await database.query('pages', 'select pg_notify($1, $2)', [channel, JSON.stringify(note)]).catch(() => undefined);
      await pause(selfMs, undefined, { signal, ref: false });
      if (!this.#hasHeard) throw new Error('its own note has not come back');
    }
  }

  #hear(payload: string | undefined): void {
    this.#hasHeard = true;
    try {
      this.#tell(JSON.parse(payload ?? '') as Note);
    } catch (error) {
      this.#input.log.warn({ err: error }, 'a note of another node is not understood');
    }
  }

  #tell({ from, topic, names }: Note): void {
    if (from === this.#input.node) return;
    for (const listener of this.#listeners.get(topic) ?? []) listener(names);
  }
}
