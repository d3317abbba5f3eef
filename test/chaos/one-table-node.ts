import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { pino } from 'pino';
import { systemClock } from '../../core/clock.js';
import { Database } from '../../plugins/cluster/database/database.js';
import { NodeSession } from '../../plugins/cluster/session.js';
import { stopHere } from './node-life.js';
import type { NodeArguments } from './node-process.js';
import { done, leased, waiting } from './one-table.js';

/**
 * A node of the simplest queue: claims rows of `chaos.job` in batches, sends each to the sink, asks before the dot, and
 * settles. It keeps to the rules of the real one for leases, outcomes and claims in doubt.
 */
interface Job {
  readonly id: string;
  readonly token: string;
  /** The session that the lease belongs to. */
  readonly key: string;
}

interface Outcome extends Job {
  readonly isSent: boolean;
}

const batch = 64;
const mostInHand = 512;
const connections = 8;
const idleMs = 20;

/** The sink in one direction at a time: what is written, and then the replies that belong to it. */
class SinkConnection {
  readonly #socket: Socket;
  #text = '';

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('latin1').on('data', (text: string) => (this.#text += text));
    socket.on('error', () => socket.destroy());
  }

  static async open(port: number, node: string): Promise<SinkConnection> {
    const connection = new SinkConnection(connect({ port, host: '127.0.0.1', noDelay: true }));
    await connection.replies(1);
    connection.write(`EHLO ${node}\r\n`);
    await connection.replies(1);
    return connection;
  }

  write(text: string): void {
    this.#socket.write(text);
  }

  /** The code of the last of so many. */
  async replies(count: number): Promise<string> {
    for (;;) {
      const lines = this.#text.split('\r\n');
      if (lines.length > count) {
        this.#text = lines.slice(count).join('\r\n');
        return lines[count - 1]?.slice(0, 3) ?? '';
      }
      await once(this.#socket, 'data');
    }
  }

  break(): void {
    this.#socket.destroy();
  }
}

class OneTableNode {
  readonly #given: NodeArguments;
  readonly #database: Database;
  readonly #session: NodeSession;
  /** By token: what was claimed, and whose outcome is not committed yet. */
  readonly #inHand = new Map<string, Job>();
  readonly #queue: Job[] = [];
  #outcomes: Outcome[] = [];
  #begun = 0;

  constructor(given: NodeArguments) {
    this.#given = given;
    const { database, name, instance, sessionMs } = given;
    const url = new URL(database);
    const log = pino({ level: 'silent' });
    const clock = systemClock;
    this.#database = new Database({
      settings: { hosts: [url.host], name: url.pathname.slice(1), user: url.username, tls: 'off' },
      applicationName: `postern/${name}`,
      queryTimeoutMs: sessionMs,
      clock,
      log,
    });
    this.#session = new NodeSession({ database: this.#database, node: name, instance, sessionMs, clock, log });
  }

  async run(): Promise<void> {
    this.#session.onChange(() => this.#forgetUnsent());
    await this.#session.join();
    const { sessionMs } = this.#given;
    await Promise.all([
      forever(() => this.#claim()),
      forever(() => this.#settle()),
      forever(() => this.#takeOver(), sessionMs / 4),
      forever(() => this.#giveBack(), sessionMs),
      ...Array.from({ length: connections }, () => forever(() => this.#deliver())),
    ]);
  }

  /** Leases of a session that has ended are taken by the others. Without a fence nobody minds. */
  #forgetUnsent(): void {
    if (this.#given.fence === 'none') return;
    for (const { token } of this.#queue.splice(0)) this.#inHand.delete(token);
  }

  async #claim(): Promise<void> {
    const { key } = this.#session;
    if (key === undefined || this.#queue.length >= batch || this.#inHand.size > mostInHand) return pause(idleMs);
    const tokens = Array.from({ length: batch }, () => `${randomInt(1, 2 ** 48 - 1)}`);
    const { rows } = await this.#database.query<{ id: string; token: string }>(
      'claim',
      `with picked as materialized (
         select id from chaos.job where state = ${waiting} limit $2 for update skip locked),
       numbered as (select id, row_number() over () as nth from picked)
       update chaos.job j set state = ${leased}, token = t.token, session = s.key, claimed_at = clock_timestamp()
       from numbered n join unnest($3::bigint[]) with ordinality as t (token, nth) using (nth), postern.session s
       where j.id = n.id and s.key = $1 and not s.dead
       returning j.id, j.token::text`,
      [key, batch, tokens],
    );
    for (const row of rows) {
      const job = { ...row, key };
      this.#inHand.set(job.token, job);
      this.#queue.push(job);
    }
    if (key !== this.#session.key) this.#forgetUnsent();
    if (rows.length === 0) await pause(idleMs);
  }

  /** One connection, as long as it holds. */
  async #deliver(): Promise<void> {
    const sink = await SinkConnection.open(this.#given.sinkPort, this.#given.name);
    try {
      for (;;) {
        const job = this.#queue.shift();
        if (job === undefined) {
          await pause(idleMs);
          continue;
        }
        const isSent = await this.#send(sink, job);
        this.#outcomes.push({ ...job, isSent });
        if (!isSent) return;
      }
    } finally {
      sink.break();
    }
  }

  async #send(sink: SinkConnection, { id, token, key }: Job): Promise<boolean> {
    const hasFence = this.#given.fence === 'both';
    sink.write(`MAIL FROM:<sender@chaos.example>\r\nRCPT TO:<recipient@chaos.example>\r\nDATA\r\n`);
    const [, isAlive] = await Promise.all([sink.replies(3), hasFence ? this.#session.mayEnd(key) : true]);
    if (!isAlive) return false;
    this.#begun += 1;
    if (this.#begun === this.#given.stopBeforeDot) await stopHere(id);
    const text = `Message-ID: <${id}>\r\nX-Token: ${token}\r\n\r\nchaos\r\n.\r\n`;
    if (hasFence && !(await this.#session.mayEnd(key))) return false;
    sink.write(text);
    return (await sink.replies(1)) === '250';
  }

  /** An outcome counts while the lease holds, and after its loss as long as nobody else has begun. */
  async #settle(): Promise<void> {
    const all = this.#outcomes.splice(0, 200);
    if (all.length === 0) return pause(idleMs);
    try {
      for (const [isSent, state] of [
        [true, done],
        [false, waiting],
      ] as const) {
        const some = all.filter((outcome) => outcome.isSent === isSent);
        if (some.length === 0) continue;
        await this.#database.query(
          'settle',
          `update chaos.job j set state = $3, token = null, session = null, last_token = o.token
           from unnest($1::text[], $2::bigint[]) as o (id, token)
           where j.id = o.id and (j.state = ${leased} and j.token = o.token or j.state = ${waiting} and j.last_token = o.token)`,
          [some.map(({ id }) => id), some.map(({ token }) => token), state],
        );
      }
    } catch (error) {
      this.#outcomes.unshift(...all);
      throw error;
    }
    for (const { token } of all) this.#inHand.delete(token);
  }

  /** For ever, not once: a claim may be committed behind the death of its session. */
  async #takeOver(): Promise<void> {
    await this.#session.endEarlier();
    await this.#database.query(
      'settle',
      `update chaos.job set state = ${waiting}, last_token = token, token = null, session = null
       where id in (select j.id from chaos.job j join postern.session s on s.key = j.session
                    where j.state = ${leased} and s.dead for update of j skip locked)`,
    );
  }

  /**
   * Leases of our session that we know nothing of: the answer to their claim was lost. They are given back by token, so
   * that a statement that arrives late does not take a newer lease.
   */
  async #giveBack(): Promise<void> {
    const { key } = this.#session;
    if (key === undefined) return;
    const { rows } = await this.#database.query<{ token: string }>(
      'settle',
      `select token::text from chaos.job where session = $1 and state = ${leased}
       and claimed_at < clock_timestamp() - make_interval(secs => $2)`,
      [key, (2 * this.#given.sessionMs) / 1000],
    );
    const unknown = rows.map(({ token }) => token).filter((token) => !this.#inHand.has(token));
    if (unknown.length === 0) return;
    await this.#database.query(
      'settle',
      `update chaos.job set state = ${waiting}, last_token = token, token = null, session = null
       where session = $1 and state = ${leased} and token = any ($2::bigint[])`,
      [key, unknown],
    );
  }
}

/** Repeats a step of the node; what fails, as the database may at any time, is tried again. */
async function forever(step: () => Promise<void>, pauseMs = 0): Promise<never> {
  for (;;) {
    try {
      await step();
      if (pauseMs > 0) await pause(pauseMs);
    } catch {
      await pause(100);
    }
  }
}

await new OneTableNode(JSON.parse(process.argv[2] ?? '{}') as NodeArguments).run();
