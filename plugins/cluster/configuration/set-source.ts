import type { Clock } from '../../../core/clock.js';
import { sha256Of } from '../../../core/config/layer-folder.js';
import type { Cluster, SqlRow, SqlTransaction } from '../../../core/contracts/cluster.js';
import type {
  ConfigurationSource,
  LookBounds,
  SourceKind,
  SourceResult,
  SourceServer,
  SourceSnapshot,
} from '../../../core/contracts/configuration-source.js';
import type { ComponentHealth, HealthState } from '../../../core/contracts/health.js';
import type { HealthOverview } from '../../../core/contracts/server.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import type { ConfigurationSets } from './sets.js';

/** A set is good when the health of its node has not fallen for so long. Milliseconds. */
const checkMs = 10_000;
const topic = 'configuration';
/** What an operator wants so, and what no set can change. */
const notOfSets = new Set(['maintenance', 'cluster']);
const severity: Readonly<Record<HealthState, number>> = { up: 0, degraded: 1, down: 2 };

type Components = Readonly<Record<string, ComponentHealth>>;

/** A set that this node applies. It has the duty `apply` meanwhile, so that no other node does. */
interface Turn {
  readonly number: number;
  readonly move: string;
  readonly session: string;
  /** Health before. */
  readonly before: Components;
  /** When the check ends, by the monotonic clock; undefined while the set is not applied. */
  until?: number;
  /** How it ended; not yet written while the database is away. */
  end?: { readonly state: 'applied' | 'refused' | 'failed' | 'postponed'; readonly why?: string };
}

interface SetSourceInput {
  readonly cluster: Cluster;
  readonly sets: ConfigurationSets;
  readonly health: HealthOverview;
  readonly clock: Clock;
  readonly log: Log;
}

/** `postgres:` as a source of configuration files: the set in use, which one node after the other applies. */
export class SetSource implements ConfigurationSource, SourceKind {
  readonly scheme = 'postgres';
  readonly shown = 'postgres:';
  readonly #input: SetSourceInput;
  readonly #listeners = new Set<() => void>();
  #turn: Turn | undefined;

  constructor(input: SetSourceInput) {
    this.#input = input;
    input.cluster.onRing(topic, () => this.#notify());
  }

  open(): ConfigurationSource {
    return this;
  }

  /** Called after another set was put to use here. */
  changed(): void {
    this.#input.cluster.ring(topic, ['']);
    this.#notify();
  }

  watch(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async look({ dryRun = false }: LookBounds): Promise<SourceSnapshot> {
    const { number, wanted } = await this.#whichSet(dryRun);
    const { files } = await this.#input.sets.get(number);
    return {
      files: files.map(({ name, text }) => ({ name, sha256: sha256Of(text) })),
      skipped: [],
      wanted,
      read: (name) => Promise.resolve(Buffer.from(files.find((file) => file.name === name)?.text ?? '')),
      confirm: () => Promise.resolve(),
    };
  }

  async done(result: SourceResult): Promise<void> {
    const turn = this.#turn;
    if (turn === undefined || turn.until !== undefined || turn.end !== undefined) return;
    const { clock, log } = this.#input;
    if (result.status === 'applied') turn.until = clock.monotonic() + checkMs;
    else if (result.status === 'unchanged') turn.end = { state: 'applied' };
    else turn.end = { state: result.status, ...('why' in result && { why: result.why }) };
    await this.#write(turn).catch((error: unknown) =>
      log.warn({ err: error }, 'the state of a set is not written yet'),
    );
  }

  async servers(): Promise<readonly SourceServer[]> {
    const { nodes } = await this.#input.sets.state();
    return nodes.map(({ node, number, state, why }) => ({
      server: node,
      version: number === null ? null : `set ${number}`,
      state,
      why,
    }));
  }

  /** Ends the turn of this node when its health has fallen, or has not for long enough. Called each second. */
  async check(): Promise<void> {
    const turn = this.#turn;
    if (turn === undefined) return;
    const { clock, health } = this.#input;
    if (turn.end === undefined && turn.until !== undefined) {
      const why = fallen(turn.before, health.components());
      if (why !== undefined) turn.end = { state: 'failed', why };
      else if (clock.monotonic() >= turn.until) turn.end = { state: 'applied' };
    }
    if (turn.end !== undefined) await this.#write(turn);
  }

  /** Finds a set that was not announced, and a turn that is free. Called at intervals. */
  async lookForNews(): Promise<void> {
    const { cluster } = this.#input;
    const rows = await cluster.database.query(
      'pages',
      `select from postern.config_current c where stopped_by is null and not exists (
         select from postern.config_node n where n.node = $1 and n.move = c.move and n.state in ('applied', 'checking'))`,
      [cluster.node],
    );
    if (rows.length > 0) this.#notify();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }

  /** @throws Problem `conflict` while it is not the turn of this node, or the move was stopped */
  async #whichSet(dryRun: boolean): Promise<{ readonly number: number; readonly wanted: boolean }> {
    const { cluster, health } = this.#input;
    const { node, session } = cluster;
    // Before anything changes.
    const before = health.components();
    const choice = await cluster.database.transaction('pages', (sql) => choose(sql, { node, session, dryRun }));
    if (choice.refused !== undefined) {
      if (choice.rings) this.changed();
      throw problem(choice.isEmpty === true ? 'unavailable' : 'conflict', choice.refused);
    }
    const { number, move, begins } = choice;
    if (begins && session !== undefined) this.#turn = { number, move, session, before };
    return { number, wanted: begins };
  }

  async #write(turn: Turn): Promise<void> {
    const { cluster, log } = this.#input;
    const { number, move, session, end } = turn;
    const state = end?.state === 'postponed' ? 'waiting' : (end?.state ?? 'checking');
    const isApplied = turn.until !== undefined || state === 'applied';
    await cluster.database.transaction('pages', async (sql) => {
      await sql.query('select from postern.config_current for update');
      const mine = await sql.query(
        `update postern.config_node set state = $4, why = $5, number = case when $6 then $7::bigint else number end
         where node = $1 and move = $2 and session = $3 and state in ('applying', 'checking') returning node`,
        [cluster.node, move, session, state, end?.why ?? null, isApplied, number],
      );
      if (mine.length > 0 && (state === 'refused' || state === 'failed')) await stop(sql, move, cluster.node, end?.why);
      if (end !== undefined)
        await sql.query("delete from postern.duty where name = 'apply' and session = $1", [session]);
    });
    if (end === undefined) return;
    if (this.#turn === turn) this.#turn = undefined;
    log.info({ set: number, state, why: end.why }, 'this node has ended its turn with a set of the configuration');
    cluster.ring(topic, ['']);
  }
}

interface Choice {
  readonly number: number;
  readonly move: string;
  /** This node has the turn now. */
  readonly begins: boolean;
  readonly refused?: string;
  readonly isEmpty?: true;
  /** The others learn of a change. */
  readonly rings?: true;
}

interface Current extends SqlRow {
  readonly number: string;
  readonly move: string;
  readonly stopped_by: string | null;
  readonly stopped_why: string | null;
}

interface Asking {
  readonly node: string;
  readonly session: string | undefined;
  readonly dryRun: boolean;
}

/** The set that a node may apply now, and the duty for it. */
async function choose(sql: SqlTransaction, { node, session, dryRun }: Asking): Promise<Choice> {
  const [current] = await sql.query<Current>('select * from postern.config_current for update');
  if (current === undefined) {
    const refused = 'No set of the configuration is in use: postern cluster config push, then use';
    return { number: 0, move: '', begins: false, refused, isEmpty: true };
  }
  const { move, stopped_by: stopper, stopped_why: why } = current;
  const choice = { number: Number(current.number), move, begins: false };
  const name = `Set ${choice.number}`;
  const [own] = await sql.query<{ state: string; session: string }>(
    'select state, session from postern.config_node where node = $1 and move = $2',
    [node, move],
  );
  if (dryRun || own?.state === 'applied' || (own?.state === 'checking' && own.session === session)) return choice;
  if (stopper !== null) return { ...choice, refused: `${name} is stopped: ${stopper}: ${why ?? ''}` };
  if (session === undefined) return { ...choice, refused: `${name} waits: this node has no session.` };
  const holder = await takeDuty(sql, session);
  if (holder !== undefined) return { ...choice, refused: `${name} waits: ${holder} applies it.` };
  const [lost] = await sql.query<{ node: string }>(
    `update postern.config_node set state = 'failed', why = $3
     where move = $1 and state in ('applying', 'checking') and session <> $2 returning node`,
    [move, session, diedWhy],
  );
  if (lost !== undefined) {
    await stop(sql, move, lost.node, diedWhy);
    await sql.query("delete from postern.duty where name = 'apply' and session = $1", [session]);
    return { ...choice, refused: `${name} is stopped: ${lost.node}: ${diedWhy}`, rings: true };
  }
  await sql.query(
    `insert into postern.config_node (node, move, state, session) values ($1, $2, 'applying', $3)
     on conflict (node) do update set move = excluded.move, state = excluded.state, session = excluded.session, why = null`,
    [node, move, session],
  );
  return { ...choice, begins: true };
}

const diedWhy = 'It ended while it applied the set, or within 10 s after.';

/** Undefined when this session has the duty now; otherwise the node that has it. */
async function takeDuty(sql: SqlTransaction, session: string): Promise<string | undefined> {
  const taken = await sql.query(
    `insert into postern.duty (name, session) values ('apply', $1)
     on conflict (name) do update set session = excluded.session
     where postern.duty.session = excluded.session
       or not exists (select from postern.session s where s.key = postern.duty.session and not s.dead)
     returning name`,
    [session],
  );
  if (taken.length > 0) return undefined;
  const [row] = await sql.query<{ node: string }>(
    "select s.node from postern.duty d join postern.session s on s.key = d.session where d.name = 'apply'",
  );
  return row?.node ?? 'another node';
}

async function stop(sql: SqlTransaction, move: string, node: string, why = ''): Promise<void> {
  await sql.query(
    `update postern.config_current set stopped_by = $2, stopped_why = $3 where move = $1 and stopped_by is null`,
    [move, node, why],
  );
}

/** What is worse than before, as a sentence. */
function fallen(before: Components, after: Components): string | undefined {
  for (const [name, { status, why }] of Object.entries(after)) {
    if (notOfSets.has(name) || severity[status] <= severity[before[name]?.status ?? 'up']) continue;
    return `Its health fell within 10 s: ${name} is ${status}${why === null ? '' : `: ${why}`}`;
  }
  return undefined;
}
