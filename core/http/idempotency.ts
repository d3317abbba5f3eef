import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, statSync } from 'node:fs';
import { readFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../clock.js';
import { writeFileAtomic } from '../disk/atomic.js';
import type { Log } from '../log/log.js';
import { problem } from '../problem.js';

/** An answer as it went out. */
export interface KeptAnswer {
  /** Of what was asked: the same key with another payload is a mistake. */
  readonly fingerprint: string;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface KeptAnswersInput {
  readonly folder: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly most?: number;
  readonly mostBytes?: number;
}

const lifeMs = 24 * 3600 * 1000;
const named = /^[0-9a-f]{64}\.json$/;
/** What may lie in the folder: answers, and what a dead process left of one. */
export const keptAnswerNames: readonly RegExp[] = [named, /^\.[0-9a-f]{64}\.json\.[0-9a-z]{20}\.tmp$/];

interface Known {
  readonly at: number;
  readonly bytes: number;
}

/**
 * Answers by their Idempotency-Key, for a day, over restarts. The oldest go first when there are too many. An answer is kept
 * before it goes out, and only when the work was done: who was refused may use his key again.
 */
export class KeptAnswers {
  readonly #folder: string;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #most: number;
  readonly #mostBytes: number;
  readonly #running = new Set<string>();
  /** In the order of age. */
  readonly #known = new Map<string, Known>();
  #bytes = 0;

  constructor({ folder, clock, log, most = 10_000, mostBytes = 256 * 1024 * 1024 }: KeptAnswersInput) {
    this.#folder = folder;
    this.#clock = clock;
    this.#log = log;
    this.#most = most;
    this.#mostBytes = mostBytes;
  }

  /** Learns what an earlier process has kept. A folder that cannot be had is no reason to stop: nothing is kept then. */
  load(): void {
    try {
      this.#look();
    } catch (error) {
      this.#log.error({ err: error, folder: this.#folder }, 'answers cannot be kept for their Idempotency-Key');
    }
  }

  #look(): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    const found = readdirSync(this.#folder, { withFileTypes: true })
      .filter((entry) => entry.isFile() && named.test(entry.name))
      .map(({ name }) => ({ name, stat: statSync(join(this.#folder, name)) }))
      .sort((a, b) => a.stat.mtimeMs - b.stat.mtimeMs);
    for (const { name, stat } of found) this.#note(name, { at: stat.mtimeMs, bytes: stat.size });
  }

  /** Runs the task unless that key is being used right now. @throws Problem `conflict` */
  async alone<T>(key: string, task: (name: string) => Promise<T>): Promise<T> {
    const name = `${createHash('sha256').update(key).digest('hex')}.json`;
    if (this.#running.has(name)) {
      throw problem('conflict', {
        detail: 'A request with this Idempotency-Key is still being worked on. Ask again in a moment.',
        headers: { 'Retry-After': '1' },
      });
    }
    this.#running.add(name);
    try {
      return await task(name);
    } finally {
      this.#running.delete(name);
    }
  }

  async find(name: string): Promise<KeptAnswer | undefined> {
    const known = this.#known.get(name);
    if (known === undefined || known.at + lifeMs <= this.#clock.now()) return undefined;
    try {
      return JSON.parse(await readFile(join(this.#folder, name), 'utf8')) as KeptAnswer;
    } catch (error) {
      this.#log.warn({ err: error }, 'a kept answer cannot be read');
      return undefined;
    }
  }

  /** Never rejects: the work is done, and its answer goes out in any case. */
  async keep(name: string, answer: KeptAnswer): Promise<void> {
    const text = JSON.stringify(answer);
    try {
      await writeFileAtomic(join(this.#folder, name), text);
      this.#note(name, { at: this.#clock.now(), bytes: Buffer.byteLength(text) });
      await this.#trim();
    } catch (error) {
      this.#log.error({ err: error }, 'an answer could not be kept for its Idempotency-Key');
    }
  }

  #note(name: string, known: Known): void {
    this.#forget(name);
    this.#known.set(name, known);
    this.#bytes += known.bytes;
  }

  #forget(name: string): void {
    this.#bytes -= this.#known.get(name)?.bytes ?? 0;
    this.#known.delete(name);
  }

  async #trim(): Promise<void> {
    const oldest = this.#clock.now() - lifeMs;
    for (const [name, { at }] of this.#known) {
      if (this.#known.size <= this.#most && this.#bytes <= this.#mostBytes && at > oldest) return;
      this.#forget(name);
      await unlink(join(this.#folder, name)).catch(() => undefined);
    }
  }
}
