import { uptime } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import type pg from 'pg';
import type { Clock } from '../../core/clock.js';
import type { Log } from '../../core/log/log.js';
import { startError } from '../../core/problem.js';
import type { Database } from './database/database.js';
import { complaintOf } from './database/schema.js';

interface SessionInput {
  readonly database: Pick<Database, 'query' | 'transaction'>;
  /** Name of this node. */
  readonly node: string;
  /** Drawn once for the data folder: it distinguishes two servers with one name. */
  readonly instance: string;
  /** A session that is silent for so long is dead to the others. Milliseconds. */
  readonly sessionMs: number;
  readonly clock: Clock;
  readonly log: Log;
  /** What the others may know about this node; written with each beat. */
  readonly report?: () => Readonly<Record<string, unknown>>;
  /** Seconds since the machine was started, sleep included. */
  readonly uptime?: () => number;
}

/** Heartbeats in `sessionMs`. */
const beatsPerSession = 6;
/** Looks at the sessions of others in `sessionMs`. */
const looksPerSession = 20;
/** After a longer pause between two looks, as a share of `sessionMs`, the silence of others is counted anew. */
const maxLookGap = 1 / 10;
/** Share of `sessionMs` after which a node without an answer to a beat stops. The others wait for all of it. */
const validShare = 0.7;
/** An answer of the database about this session counts for so long. Milliseconds. */
const answerMs = 2000;
/** The clocks of a machine that slept or was frozen differ by more. Milliseconds. */
const clockPlayMs = 1000;

/** A beat that the database has confirmed. */
interface Beat {
  readonly number: number;
  /** When it was sent, by the three clocks of the machine. */
  readonly sentAt: number;
  readonly wallAt: number;
  readonly uptimeAt: number;
}

interface Living {
  readonly key: string;
  beat: Beat;
  /** Earlier sessions of this data folder have ended. */
  isOnly: boolean;
}

/** The database knows this session with this beat, unless it has forgotten commits. */
interface Earlier {
  readonly key: string;
  readonly beatNumber: number;
}

interface TablesRow {
  readonly version: number;
  readonly least_reader: number;
}

interface BeatRow extends TablesRow {
  readonly beat: string;
  readonly draining: boolean;
  readonly now: number;
}

const tablesText = 'select version, least_reader from postern.schema order by version desc limit 1';

/**
 * The life of a node among the others: a row in the database with a heartbeat. Leases belong to a session, not to a
 * node; when the others have declared it dead, it must not send another final dot, and joins anew.
 */
export class NodeSession {
  readonly #input: SessionInput;
  readonly #beatMs: number;
  readonly #lookMs: number;
  readonly #others: Observation;
  readonly #stopped = new AbortController();
  readonly #listeners = new Set<() => void>();
  readonly #drainListeners = new Set<() => void>();
  readonly #question: Question;
  #living: Living | undefined;
  /** The one that this process has lost. */
  #earlier: Earlier | undefined;
  #forgottenAt: number | undefined;
  #outdated: string | undefined;
  #fenced = 0;
  /** Kept when the session ends: the next one of this process drains as well. */
  #draining = false;
  #clockOffset: number | undefined;
  /** When the last beat that was answered was sent, of any session. */
  #answeredAt: number;
  #running: Promise<unknown> | undefined;

  constructor(input: SessionInput) {
    this.#input = input;
    this.#answeredAt = input.clock.monotonic();
    this.#beatMs = input.sessionMs / beatsPerSession;
    this.#lookMs = input.sessionMs / looksPerSession;
    this.#others = new Observation(input.sessionMs);
    this.#question = new Question(input.clock, (key) => this.#isAlive(key));
  }

  /** Of the session that lives, as far as this node knows; undefined while it has none. */
  get key(): string | undefined {
    return this.#living !== undefined && this.#isTime(this.#living.beat) ? this.#living.key : undefined;
  }

  /** How often the others have declared this node dead, or it had to assume so. */
  get fenced(): number {
    return this.#fenced;
  }

  /** When the database was found to have forgotten commits, by the clock of this machine; undefined when it has not. */
  get forgottenAt(): number | undefined {
    return this.#forgottenAt;
  }

  /** Why this server cannot work with the tables any more; undefined when it can. Read with each beat. */
  get outdated(): string | undefined {
    return this.#outdated;
  }

  /** An operator wants it so; read with each beat. */
  get draining(): boolean {
    return this.#draining;
  }

  /** Milliseconds by which the clock of the database is ahead of `clock.monotonic()`; undefined until it was asked. */
  get clockOffset(): number | undefined {
    return this.#clockOffset;
  }

  /** Milliseconds since the last beat that was answered was sent; undefined without a session. */
  get beatAgeMs(): number | undefined {
    return this.#living && this.#input.clock.monotonic() - this.#living.beat.sentAt;
  }

  /** Milliseconds since the last beat that was answered was sent, or since the start. */
  get silentMs(): number {
    return this.#input.clock.monotonic() - this.#answeredAt;
  }

  /** Called when `draining` has changed. Returns the undo. */
  onDraining(listener: () => void): () => void {
    this.#drainListeners.add(listener);
    return () => this.#drainListeners.delete(listener);
  }

  /** Called when a session has begun, and when it has ended. Returns the undo. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Begins a session, and beats until `leave`. While the database is away, it begins one as soon as it can.
   *
   * @throws a start error when another server has this name
   */
  async join(): Promise<void> {
    try {
      await this.#begin().catch((error: unknown) => {
        if (!(error instanceof NameTaken)) throw error;
        return this.#beginAfterTheOther();
      });
    } catch (error) {
      if (error instanceof NameTaken) throw startError(error.message);
      this.#input.log.error({ err: error }, 'this node cannot join the cluster yet');
    }
    this.#running = Promise.all([this.#beatForever(), this.#lookForever()]);
  }

  /** The other server of this name may be gone: then it does not beat for the length of a session. */
  async #beginAfterTheOther(): Promise<void> {
    const { database, node, instance, clock, sessionMs, log } = this.#input;
    log.warn('another server has the name of this node: is it silent for the length of a session?');
    const first = new Map<string, string>();
    for (const until = clock.monotonic() + 3 * sessionMs; clock.monotonic() < until;) {
      if (!(await this.#wait(this.#lookMs))) return;
      await this.#look();
      const text = 'select key, beat from postern.session where node = $1 and instance <> $2 and not dead';
      const { rows } = await database.query<Seen>('fence', text, [node, instance]);
      if (rows.length === 0) return this.#begin();
      for (const { key, beat } of rows) if ((first.get(key) ?? beat) !== beat) throw new NameTaken(node);
      for (const { key, beat } of rows) first.set(key, beat);
    }
    throw new NameTaken(node);
  }

  /** Ends the session, so that the others need not wait for it. */
  async leave(): Promise<void> {
    this.#stopped.abort();
    await this.#running;
    const living = this.#living;
    this.#end();
    if (living === undefined) return;
    await this.#input.database
      .query('fence', 'update postern.session set dead = true where key = $1', [living.key])
      .catch(() => undefined);
  }

  /**
   * Whether a final dot may be written now, in this turn of the event loop: the database said that the session lives,
   * and by the clocks of this machine it still does. The answer of the database may be two seconds old.
   */
  mayEnd(key: string): boolean | Promise<boolean> {
    if (!this.#mayWrite(key)) return false;
    const { clock } = this.#input;
    if (this.#question.answeredAt(key) > clock.monotonic() - answerMs) return true;
    return this.#question.ask(key).then((yes) => yes && this.#mayWrite(key));
  }

  #mayWrite(key: string): boolean {
    const living = this.#living;
    return living !== undefined && living.key === key && this.#isTime(living.beat);
  }

  /** By the clocks of this machine; a clock that counts sleep tells when the others did not. */
  #isTime({ sentAt, wallAt, uptimeAt }: Beat): boolean {
    const { clock, sessionMs, uptime: upSeconds = uptime } = this.#input;
    const passed = clock.monotonic() - sentAt;
    if (passed >= sessionMs * validShare) return false;
    return clock.now() - wallAt - passed <= clockPlayMs && upSeconds() * 1000 - uptimeAt - passed <= clockPlayMs;
  }

  async #isAlive(key: string): Promise<boolean> {
    const { rowCount } = await this.#input.database.query(
      'fence',
      'select 1 from postern.session where key = $1 and not dead',
      [key],
    );
    return rowCount === 1;
  }

  async #begin(): Promise<void> {
    const { database, node, instance, clock, log } = this.#input;
    const before = this.#now();
    const earlier = this.#earlier;
    const joined = await database.transaction('fence', async (client) => {
      // Servers with one name join one after the other.
      await client.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [`postern.session.${node}`]);
      const { rows: tables } = await client.query<TablesRow>(tablesText);
      const outdated = complaintOf(tables[0]);
      if (outdated !== undefined) return { outdated };
      const { rowCount: others } = await client.query(
        'select 1 from postern.session where node = $1 and instance <> $2 and not dead',
        [node, instance],
      );
      if (others !== 0) throw new NameTaken(node);
      const isForgotten = earlier !== undefined && (await forgets(client, earlier));
      const key = await newKey(client, node, earlier);
      const asked = clock.monotonic();
      const { rows } = await client.query<{ now: number }>(
        `insert into postern.session (key, node, instance, draining, report) values ($1, $2, $3, $4, ${withTime('$5')})
         returning extract(epoch from clock_timestamp())::float8 * 1000 as now`,
        [key, node, instance, this.#draining, this.#report()],
      );
      return { key, isForgotten, clockOffset: (rows[0]?.now ?? 0) - (asked + clock.monotonic()) / 2 };
    });
    if ('outdated' in joined) return this.#outdate(joined.outdated);
    const { key, clockOffset, isForgotten } = joined;
    this.#outdated = undefined;
    this.#earlier = undefined;
    this.#clockOffset = clockOffset;
    this.#answeredAt = before.sentAt;
    this.#living = { key, beat: { number: 0, ...before }, isOnly: false };
    log.info({ session: key }, 'this node has joined the cluster');
    if (isForgotten) this.#forgotten();
    this.#tell();
  }

  #outdate(why: string): void {
    if (this.#outdated === undefined)
      this.#input.log.error({ why }, 'this server is too old for the tables of the cluster');
    this.#outdated = why;
  }

  /** Mail that was acknowledged may be lost, and what was sent may be sent again. */
  #forgotten(): void {
    this.#forgottenAt = this.#input.clock.now();
    this.#input.log.error('the database has forgotten commits: mail that it had taken may be lost, or sent again');
  }

  /** The lock of the data folder proves that no process works in its earlier sessions. */
  async endEarlier(): Promise<void> {
    const { database, node, instance } = this.#input;
    const living = this.#living;
    if (living === undefined || living.isOnly) return;
    const text = 'update postern.session set dead = true where node = $1 and instance = $2 and key <> $3 and not dead';
    await database.query('fence', text, [node, instance, living.key]);
    living.isOnly = true;
  }

  #report(): string {
    return JSON.stringify(this.#input.report?.() ?? {});
  }

  #now(): Omit<Beat, 'number'> {
    const { clock, uptime: upSeconds = uptime } = this.#input;
    return { sentAt: clock.monotonic(), wallAt: clock.now(), uptimeAt: upSeconds() * 1000 };
  }

  async #beatForever(): Promise<void> {
    while (await this.#wait(this.#beatMs)) {
      try {
        if (this.#living === undefined) await this.#begin();
        else await this.#beat(this.#living);
      } catch (error) {
        if (error instanceof NameTaken) this.#input.log.error(error.message);
      }
      if (this.#living !== undefined && !this.#isTime(this.#living.beat)) this.#fence('it had no answer to its beats');
    }
  }

  async #beat(living: Living): Promise<void> {
    const sent = this.#now();
    const { rows } = await this.#input.database.query<BeatRow>(
      'fence',
      `update postern.session set beat = beat + 1, report = ${withTime('$2')} from (${tablesText}) t
       where key = $1 and not dead
       returning beat, draining, extract(epoch from clock_timestamp())::float8 * 1000 as now, t.version, t.least_reader`,
      [living.key, this.#report()],
    );
    const row = rows[0];
    if (row === undefined) return this.#fence('the others have declared it dead');
    const number = Number(row.beat);
    if (number <= living.beat.number) {
      this.#fence('the database has forgotten a beat');
      // The next session need not find that out.
      this.#earlier = { key: living.key, beatNumber: 0 };
      return this.#forgotten();
    }
    const outdated = complaintOf(row);
    if (outdated !== undefined) {
      this.#fence('it is too old for the tables');
      return this.#outdate(outdated);
    }
    const { clock } = this.#input;
    this.#clockOffset = row.now - (sent.sentAt + clock.monotonic()) / 2;
    this.#answeredAt = sent.sentAt;
    living.beat = { number, ...sent };
    if (row.draining !== this.#draining) this.#drain(row.draining);
  }

  #drain(draining: boolean): void {
    this.#draining = draining;
    this.#input.log.warn(draining ? 'this node is drained: it claims no mail' : 'this node claims mail again');
    for (const listener of this.#drainListeners) listener();
  }

  /** The session has ended: nothing of it may be sent any more. */
  #fence(why: string): void {
    if (this.#living === undefined) return;
    this.#fenced += 1;
    this.#earlier = { key: this.#living.key, beatNumber: this.#living.beat.number };
    this.#input.log.error({ session: this.#living.key }, `this node has left the cluster: ${why}`);
    this.#end();
  }

  #end(): void {
    this.#living = undefined;
    this.#tell();
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }

  async #lookForever(): Promise<void> {
    // Who cannot look begins to count anew.
    while (await this.#wait(this.#lookMs)) await this.#look().catch(() => undefined);
  }

  /** Declares those dead whose beat stands still while this node looks. */
  async #look(): Promise<void> {
    const { database, clock, log } = this.#input;
    const { rows } = await database.query<Seen>('fence', 'select key, beat from postern.session where not dead');
    for (const { key, beat } of this.#others.look(rows, clock.monotonic())) {
      if (key === this.#living?.key) continue;
      const { rowCount } = await database.query(
        'fence',
        'update postern.session set dead = true where key = $1 and beat = $2 and not dead',
        [key, beat],
      );
      if (rowCount === 1) log.warn({ session: key }, 'a node of the cluster is silent and counts as dead');
    }
  }

  /** False when the session is to end. */
  async #wait(ms: number): Promise<boolean> {
    const { signal } = this.#stopped;
    await pause(ms, undefined, { signal, ref: false }).catch(() => undefined);
    return !signal.aborted;
  }
}

/** A report with the time of the database, from which pages tell the age of a beat. */
const withTime = (report: string): string =>
  `${report}::jsonb || jsonb_build_object('beatAt', extract(epoch from clock_timestamp())::float8 * 1000)`;

async function forgets(client: pg.ClientBase, { key, beatNumber }: Earlier): Promise<boolean> {
  const { rows } = await client.query<{ beat: string }>('select beat from postern.session where key = $1', [key]);
  return rows[0] === undefined || Number(rows[0].beat) < beatNumber;
}

/** A database that has forgotten commits may give a number again. */
async function newKey(client: pg.ClientBase, node: string, earlier: Earlier | undefined): Promise<string> {
  const before = Number(earlier?.key.split(':').at(-1) ?? 0);
  for (;;) {
    const { rows } = await client.query<{ number: string }>("select nextval('postern.session_number') as number");
    const number = Number(rows[0]?.number);
    if (number > before) return `${node}:${number}`;
  }
}

class NameTaken extends Error {
  constructor(node: string) {
    super(
      `Another server of the cluster calls itself ${node}. Give this one another name (plugins.cluster.node), or stop that one.`,
    );
  }
}

interface Seen {
  readonly key: string;
  /** As text: it may be larger than a number. */
  readonly beat: string;
}

/** The beats of all sessions, as this node saw them. Only its own monotonic clock counts. */
class Observation {
  readonly #sessionMs: number;
  readonly #seen = new Map<string, { readonly beat: string; readonly since: number }>();
  #lookedAt = -Infinity;

  constructor(sessionMs: number) {
    this.#sessionMs = sessionMs;
  }

  /** The sessions whose beat has not changed for too long. */
  look(living: readonly Seen[], now: number): readonly Seen[] {
    if (now - this.#lookedAt > this.#sessionMs * maxLookGap) this.#seen.clear();
    this.#lookedAt = now;
    const keys = new Set(living.map(({ key }) => key));
    for (const key of this.#seen.keys()) if (!keys.has(key)) this.#seen.delete(key);
    return living.filter(({ key, beat }) => {
      const known = this.#seen.get(key);
      if (known?.beat !== beat) this.#seen.set(key, { beat, since: now });
      return known?.beat === beat && now - known.since >= this.#sessionMs;
    });
  }
}

/** One question to the database answers all who asked before it began. */
class Question {
  readonly #clock: Clock;
  readonly #isAlive: (key: string) => Promise<boolean>;
  #key = '';
  #answeredAt = -Infinity;
  #running: Promise<boolean> | undefined;
  #next: Promise<boolean> | undefined;

  constructor(clock: Clock, isAlive: (key: string) => Promise<boolean>) {
    this.#clock = clock;
    this.#isAlive = isAlive;
  }

  /** When the last question began that was answered with yes, by the monotonic clock. */
  answeredAt(key: string): number {
    return key === this.#key ? this.#answeredAt : -Infinity;
  }

  /** False for no, and when there is no answer. */
  ask(key: string): Promise<boolean> {
    if (this.#running === undefined) {
      this.#running = this.#put(key).finally(() => (this.#running = undefined));
      return this.#running;
    }
    this.#next ??= this.#running.then(() => {
      this.#next = undefined;
      return this.ask(key);
    });
    return this.#next;
  }

  async #put(key: string): Promise<boolean> {
    const began = this.#clock.monotonic();
    const yes = await this.#isAlive(key).catch(() => false);
    if (yes) {
      this.#key = key;
      this.#answeredAt = began;
    }
    return yes;
  }
}
