import { LRUCache } from 'lru-cache';
import type { Cluster, SqlTransaction } from '../../../core/contracts/cluster.js';
import { entryStates, type RecordedReply } from '../../../core/contracts/queue-entry.js';
import type { EntryFilter, QueueStatistics } from '../../../core/contracts/relay-queue.js';
import { damageHolds } from '../queue/hold-reasons.js';
import { ageLimits } from '../queue/statistics.js';
import { conditionOf, isOfOpen, recipientConditionOf, Values } from './entry-conditions.js';
import { numberOf } from './entry-rows.js';
import { inTime } from './entry-search.js';

/** With more entries the statistics are counted by one node for all, at each housekeeping. */
export const maxCountedAnew = 5000;
/** Older statistics of a large queue are counted anew by the node that shows them. */
const maxAgeMs = 90_000;
/** A node counts for a tenth of the time at most. */
const pauses = 9;
/** A node reads what another one has counted after so long. */
const readAgainMs = 5000;
/** Answers that took longer are given again. */
const maxQuickMs = 500;
/** Largest ones that are listed. */
const maxDestinations = 20_000;
const maxListed = 1000;

const documentName = 'queue-statistics';
/** Of the document: nodes of another version may have written it. */
const format = 1;

type Reply = readonly [code: number, status: string, text: string, host: string | null, at: number];

/** What the statement counts. */
interface Counted {
  readonly format: number;
  readonly at: number;
  /** Milliseconds. */
  readonly took: number;
  readonly states: readonly (readonly [state: number, count: number])[] | null;
  readonly entries: readonly [open: number, bytes: number, oldest: number | null, damaged: number];
  readonly destinations:
    readonly (readonly [string, total: number, ages: number[], oldest: number, active: number, Reply | null])[] | null;
  readonly destinationCount: number;
  readonly senders: readonly (readonly [string | null, recipients: number, messages: number])[] | null;
  readonly senderCount: number;
  readonly reasons: readonly (readonly [string, count: number, Reply])[] | null;
}

/** Counts entries and recipients in the database, which makes one text of them. */
export class EntryStatistics {
  readonly #cluster: Cluster;
  readonly #slow = new LRUCache<string, { readonly counted: Promise<Counted>; readonly until: number }>({ max: 20 });
  #notBefore = -Infinity;
  #kept: { readonly counted: Promise<Counted>; readonly until: number } | undefined;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  /** With a filter that takes long to count, the same answer for a while. */
  async of(now: number, filter?: EntryFilter): Promise<QueueStatistics> {
    if (filter === undefined) return statisticsOf(await this.#count(now));
    const { clock } = this.#cluster;
    const key = JSON.stringify(filter);
    const known = this.#slow.get(key);
    if (known !== undefined && known.until > clock.monotonic()) return statisticsOf(await known.counted);
    const began = clock.monotonic();
    const counted = this.#count(now, filter).finally(() => {
      const took = clock.monotonic() - began;
      if (took > maxQuickMs) this.#slow.set(key, { counted, until: clock.monotonic() + pauses * took });
    });
    return statisticsOf(await counted);
  }

  /** Those that one node counts for all; a little old. */
  async shared(now: number): Promise<QueueStatistics> {
    const { clock } = this.#cluster;
    if (this.#kept === undefined || this.#kept.until <= clock.monotonic()) {
      const counted = this.#read(now);
      this.#kept = { counted, until: clock.monotonic() + readAgainMs };
      counted.catch(() => (this.#kept = undefined));
    }
    return statisticsOf(await this.#kept.counted);
  }

  async #read(now: number): Promise<Counted> {
    const [row] = await this.#cluster.database.query<{ data: string }>(
      'pages',
      'select data from postern.document where name = $1',
      [documentName],
    );
    const read = row && (JSON.parse(row.data) as Counted);
    const known = read?.format === format ? read : undefined;
    if (known !== undefined && now - known.at < maxAgeMs + 2 * pauses * known.took) return known;
    // Old ones are better than none where the database is too slow.
    return this.#renewed(now).catch((error: unknown) => {
      if (known === undefined) throw error;
      return known;
    });
  }

  /** Counts the whole queue for all nodes, unless that took long and was not long ago. */
  async renew(now: number): Promise<void> {
    if (this.#cluster.clock.monotonic() < this.#notBefore) return;
    await this.#renewed(now);
    this.#kept = undefined;
  }

  async #renewed(now: number): Promise<Counted> {
    const { clock } = this.#cluster;
    const began = clock.monotonic();
    const pause = (): void => void (this.#notBefore = clock.monotonic() + pauses * (clock.monotonic() - began));
    const counted = await this.#count(now).finally(pause);
    await this.#cluster.database.query(
      'pages',
      `insert into postern.document (name, version, data) values ($1, 1, $2)
       on conflict (name) do update set data = excluded.data, version = postern.document.version + 1`,
      [documentName, JSON.stringify(counted)],
    );
    return counted;
  }

  async #count(now: number, filter?: EntryFilter): Promise<Counted> {
    const { database, clock } = this.#cluster;
    const began = clock.monotonic();
    const texts: string[] = [];
    // Of the whole queue each part takes its time, and no statement keeps dead rows for as long as all of them.
    for (const parts of filter === undefined ? partsOfCounted.map((part) => [part]) : [partsOfCounted]) {
      const values = new Values();
      const text = statisticsText(now, { filter, parts }, values);
      const [row] = await inTime(database, async (sql) => {
        await unhurried(sql);
        return sql.query<{ counted: string }>(text, values.all);
      });
      if (row !== undefined) texts.push(row.counted);
    }
    const counted = texts.map((text) => JSON.parse(text) as Partial<Counted>);
    return Object.assign({ format, at: now, took: clock.monotonic() - began }, ...counted) as Counted;
  }
}

/** Counts entries that are held because of damage. */
export const damagedText = (holds: string): string => `
  select count(*) from postern.entry where hold is not null and finished_at is null
    and (hold = any(${holds}::text[]) or hold like 'The server has ended %')`;

/** To sort and group in memory; machine code for one statement takes longer than it saves. */
async function unhurried(sql: SqlTransaction): Promise<void> {
  await sql.query("set local work_mem = '64MB'");
  await sql.query('set local jit = off');
}

/** Tables of what is counted: all of the queue, or what a filter matches. */
function chosenText(filter: EntryFilter | undefined, now: number, values: Values): string {
  const isOpen = `r.state <= ${numberOf('held')}`;
  const columns = 'r.uid, r.idx, r.destination, r.queued_at, r.state, r.code, r.reason, r.replied_at';
  if (filter === undefined)
    return `
    entries as not materialized (select e.uid, e.sender, e.size, e.queued_at from postern.entry e where e.finished_at is null),
    recipients as not materialized (select ${columns} from postern.recipient r where ${isOpen}),
    states as (
      select r.state, count(*) as n from postern.recipient r where r.idx = 0 group by r.state
      union all
      select unnest(array[was, is_now]), unnest(array[-1, 1]) from (
        select f.state as was, min(o.state) as is_now
        from postern.recipient o join postern.recipient f on f.uid = o.uid and f.idx = 0
        where o.idx > 0 and o.state < f.state group by f.uid, f.state) better),
    senders as (
      select lower(sender) as sender, sum(recipients) as recipients, sum(messages) as messages from (
        select sender, count(*) as recipients, count(*) as messages from entries group by sender
        union all
        select e.sender, 1, 0 from recipients r join postern.entry e on e.uid = r.uid where r.idx > 0
        union all
        select e.sender, -1, 0 from postern.recipient r join postern.entry e on e.uid = r.uid
        where r.idx = 0 and not ${isOpen} and e.finished_at is null) one
      group by lower(sender))`;
  const where = conditionOf(filter, now, values);
  // Else the table would be read, not the index alone.
  const finished = isOfOpen(filter) ? 'null::bigint' : 'e.finished_at';
  const chosen = recipientConditionOf(filter, values) ?? 'true';
  return `
    matching as materialized (
      select e.uid, e.sender, e.size, e.queued_at, ${finished} as finished_at,
        (select min(r.state) from postern.recipient r where r.uid = e.uid) as state
      from postern.entry e where ${where}),
    entries as not materialized (select * from matching where finished_at is null),
    recipients as materialized (
      select ${columns} from entries e join postern.recipient r on r.uid = e.uid where ${isOpen} and ${chosen}),
    states as (select state, count(*) as n from matching group by state),
    senders as (
      select lower(e.sender) as sender, sum(r.n) as recipients, count(*) as messages
      from (select uid, count(*) as n from recipients group by uid) r join entries e on e.uid = r.uid
      group by lower(e.sender))`;
}

type Part = 'states' | 'entries' | 'destinations' | 'senders' | 'reasons';
const partsOfCounted: readonly Part[] = ['states', 'entries', 'destinations', 'senders', 'reasons'];

interface Wanted {
  readonly filter: EntryFilter | undefined;
  readonly parts: readonly Part[];
}

/** The newest reply of each destination or reason that is listed. */
const repliesText = (name: 'destination' | 'reason'): string => `
  ${name}_replies as (
    select p.${name}, (select json_build_array(r.code, r.status, r.reply, r.host, r.replied_at)
      from postern.recipient r where r.uid = p.uid and r.idx = p.idx) as reply
    from (
      select distinct on (${name}) ${name}, uid, idx from recipients
      where ((${name}, replied_at) in (select ${name}, replied_at from by_${name} where place <= ${maxListed})) is true
        and code is not null) p)`;

function statisticsText(now: number, { filter, parts }: Wanted, values: Values): string {
  const chosen = chosenText(filter, now, values);
  const ages = [...ageLimits, Infinity].map((_, age) => `coalesce(sum(n) filter (where age = ${age}), 0)`);
  const counts: Readonly<Record<Part, () => string>> = {
    states: () => `
    'states', (select json_agg(json_build_array(state, n)) from (select state, sum(n) as n from states group by state) s)`,
    entries: () => `
    'entries', (select json_build_array(count(*), coalesce(sum(size), 0), min(queued_at),
      (${damagedText(values.add(Object.values(damageHolds)))})) from entries)`,
    destinations: () => `
    'destinations', (select json_agg(json_build_array(d.destination, d.total, d.ages, d.oldest, d.active, p.reply)
        order by d.place)
      from by_destination d left join destination_replies p using (destination) where d.place <= ${maxDestinations}),
    'destinationCount', (select count(*) from by_destination)`,
    senders: () => `
    'senders', (select json_agg(json_build_array(sender, recipients, messages)) from (
      select * from by_sender order by recipients desc, coalesce(sender, '') collate "C" limit ${maxListed}) s),
    'senderCount', (select count(*) from by_sender)`,
    reasons: () => `
    'reasons', (select json_agg(json_build_array(reason, d.total, p.reply) order by d.place)
      from by_reason d join reason_replies p using (reason))`,
  };
  const age = parts.includes('destinations')
    ? `width_bucket(${values.add(Math.floor(now))}::bigint - queued_at, ${values.add(ageLimits.map((minutes) => minutes * 60_000))}::bigint[])`
    : '0';
  return `
  with ${chosen},
  by_age as (
    select destination, ${age} as age, count(*) as n, min(queued_at) as oldest,
      count(*) filter (where state = 0) as active, max(replied_at) as replied_at
    from recipients group by 1, 2),
  by_destination as materialized (
    select destination, sum(n) as total, json_build_array(${ages.join(', ')}) as ages, min(oldest) as oldest,
      sum(active) as active, max(replied_at) as replied_at,
      row_number() over (order by sum(n) desc, destination) as place
    from by_age group by destination),
  by_reason as materialized (
    select reason, count(*) as total, max(replied_at) as replied_at,
      row_number() over (order by count(*) desc, reason collate "C") as place
    from recipients where code is not null group by reason),
  ${repliesText('destination')},
  ${repliesText('reason')},
  by_sender as materialized (select sender, recipients, messages from senders where recipients > 0)
  select json_build_object(${parts.map((part) => counts[part]()).join(',')})::text as counted`;
}

function statisticsOf(counted: Counted): QueueStatistics {
  const [open, bytes, oldest, damaged] = counted.entries;
  const states = new Map(counted.states ?? []);
  return {
    at: counted.at,
    byState: Object.fromEntries(
      entryStates.map((state) => [state, states.get(numberOf(state)) ?? 0]),
    ) as QueueStatistics['byState'],
    byDestination: (counted.destinations ?? []).map(([destination, total, ages, since, active, reply]) => {
      return { destination, total, ages, oldest: since, active, lastReply: reply && replyOf(reply) };
    }),
    destinationCount: counted.destinationCount,
    ageLimits,
    bySender: (counted.senders ?? []).map(([sender, count, messages]) => ({ sender, count, messages })),
    senderCount: counted.senderCount,
    byReason: (counted.reasons ?? []).map(([reason, count, reply]) => ({ reason, count, example: replyOf(reply) })),
    open,
    bytes,
    oldest,
    quarantined: 0,
    damaged,
  };
}

const replyOf = ([code, status, text, host, at]: Reply): RecordedReply => ({ code, status, text, host, at });
