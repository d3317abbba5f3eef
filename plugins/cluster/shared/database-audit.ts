import { z } from 'zod';
import type { Cluster, SqlRow, SqlTransaction } from '../../../core/contracts/cluster.js';
import {
  type AuditEntry,
  type AuditPage,
  type AuditQuery,
  type AuditReader,
  requestedPath,
} from '../../../core/contracts/http-records.js';
import type { Log } from '../../../core/log/log.js';
import { redact } from '../../../core/log/redact.js';
import { isProblem, problem } from '../../../core/problem.js';
import { parseTime } from '../../../core/text/format.js';
import { auditStamp, linesAfter, parsePlace } from './audit-files.js';
import { isUnanswered } from '../database/database.js';
import { askFor } from '../database/server-state.js';

/** Rows that one request looks at; a page with fewer entries returns a cursor to continue. */
const maxScanned = 100_000;

interface DatabaseAuditInput {
  readonly cluster: Cluster;
  /** Of the audit log of this server. */
  readonly folder: string;
  /** The oldest lines of a node are removed beyond. */
  readonly maxBytes: number;
  readonly log: Log;
}

/** The audit logs of all nodes. Each node copies what is in its files. */
export class DatabaseAudit implements AuditReader {
  readonly #input: DatabaseAuditInput;
  /** Of the files when all was copied. */
  #stamp: string | undefined;
  #copying: Promise<void> | undefined;

  constructor(input: DatabaseAuditInput) {
    this.#input = input;
  }

  get node(): string {
    return this.#input.cluster.node;
  }

  async read(query: AuditQuery): Promise<AuditPage> {
    await this.copy().catch((error: unknown) => {
      if (!isProblem(error)) this.#input.log.warn({ err: error }, 'the audit log of this node cannot be copied now');
    });
    try {
      return await readPage(this.#input.cluster, query);
    } catch (cause) {
      if (isProblem(cause) || !isUnanswered(cause)) throw cause;
      throw problem('unavailable', { detail: 'The database of the cluster does not answer.', cause });
    }
  }

  /** Resolves when all lines that were written before the call are in the database. */
  async copy(): Promise<void> {
    await this.#copying?.catch(() => undefined);
    this.#copying ??= this.#copyAll().finally(() => (this.#copying = undefined));
    await this.#copying;
  }

  async #copyAll(): Promise<void> {
    const { folder, cluster } = this.#input;
    const stamp = await auditStamp(folder);
    if (stamp === this.#stamp) return;
    while (await cluster.database.transaction('pages', (sql) => this.#copyBatch(sql)));
    this.#stamp = stamp;
  }

  /**
   * Lines and the place after them are written together, so that none is written twice or left out. Returns whether
   * there may be more.
   */
  async #copyBatch(sql: SqlTransaction): Promise<boolean> {
    const { folder, maxBytes } = this.#input;
    const known = await sql.query<{ position: string; place: string }>(
      'select position, place from postern.audit_copied where node = $1 for update',
      [this.node],
    );
    const next = await linesAfter(folder, known[0] && parsePlace(known[0].place));
    if (next === undefined) return false;
    let position = Number(known[0]?.position ?? 0);
    const rows = next.lines.flatMap((line) => {
      position += Buffer.byteLength(line) + 1;
      return rowOf(line, position) ?? [];
    });
    await sql.query(insertText, [this.node, JSON.stringify(rows)]);
    await sql.query(
      `insert into postern.audit_copied (node, position, place) values ($1, $2, $3)
       on conflict (node) do update set position = excluded.position, place = excluded.place`,
      [this.node, position, JSON.stringify(next.place)],
    );
    if (position > maxBytes)
      await sql.query('delete from postern.audit where node = $1 and position <= $2', [this.node, position - maxBytes]);
    return true;
  }
}

/** Files of a backup may have lines again that were copied: an equal line of the same moment is the same. */
const insertText = `
  insert into postern.audit (node, position, at, who, address, method, path, action, done, line)
  select $1, n.* from json_to_recordset($2::json) as n(position bigint, at bigint, who text, address text, method text,
    path text, action text, done boolean, line text)
  where not exists (select from postern.audit a where a.node = $1 and a.at = n.at and a.line = n.line)`;

const Line = z.looseObject({
  at: z.iso.datetime(),
  by: z.string().nullable(),
  from: z.string(),
  method: z.string(),
  route: z.string(),
  params: z.record(z.string(), z.unknown()),
  status: z.number(),
  action: z.string().optional(),
});

/** Undefined for a line that was cut off by a crash. */
function rowOf(line: string, position: number): object | undefined {
  const { data } = Line.safeParse(jsonOf(line));
  if (data === undefined) return undefined;
  const { by, from, method, action = '', status } = data;
  return {
    position,
    at: Date.parse(data.at),
    who: searched(by ?? ''),
    address: searched(from),
    method,
    path: searched(requestedPath(data)),
    action: searched(action),
    done: status < 400,
    line,
  };
}

function jsonOf(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

/** The database has no NUL and no half of a surrogate pair. */
const searched = (text: string): string =>
  text
    .toLowerCase()
    .replaceAll('\0', '\ufffd')
    .replace(/\p{Surrogate}/gu, '\ufffd');

/** The next page begins after this row. */
interface Cursor {
  readonly at: number;
  readonly node: string;
  readonly position: number;
}

const cursorPattern = /^db-([0-9a-z]{1,11})-([0-9a-z]{1,11})-([0-9a-z.-]{1,63})$/;

const cursorOf = ({ at, node, position }: AuditRow): string =>
  `db-${Number(at).toString(36)}-${Number(position).toString(36)}-${node}`;

function parseCursor(cursor: string): Cursor {
  const [, at = '', position = '', node = ''] = cursorPattern.exec(cursor) ?? [];
  if (node === '') throw problem('bad-request', { errors: [{ pointer: 'cursor', message: 'is not one of ours' }] });
  return { at: parseInt(at, 36), position: parseInt(position, 36), node };
}

interface AuditRow extends SqlRow {
  readonly at: string;
  readonly node: string;
  readonly position: string;
}

async function readPage({ database }: Cluster, query: AuditQuery): Promise<AuditPage> {
  const { limit, cursor } = query;
  const from = cursor === undefined ? undefined : parseCursor(cursor);
  const times = [query.since, query.until].map((time) => (time === undefined ? null : parseTime(time)));
  const words = [query.who, query.from, query.path, query.action];
  const wanted = [
    ...words.map((word) => (word === undefined ? null : searched(word))),
    query.method ?? null,
    query.result === undefined ? null : query.result === 'done',
    query.node ?? null,
  ];
  const after = [from?.at ?? null, from?.node ?? null, from?.position ?? null];
  const ask = askFor(database);
  const found = await ask<AuditRow & { readonly line: string }>(pageText, [
    ...times,
    ...after,
    maxScanned,
    ...wanted,
    limit + 1,
  ]);
  const nothing = [null, null, null];
  const [counted] = await ask<{ total: number; scanned: number }>(countText, [
    ...times,
    ...nothing,
    maxScanned + 1,
    ...wanted,
  ]);
  const shown = found.slice(0, limit);
  const isFull = found.length > limit;
  const [end] = isFull ? [shown.at(-1)] : await ask<AuditRow>(endText, [...times, ...after, maxScanned]);
  return {
    items: shown.map(({ line, node }) => ({ ...(redact(JSON.parse(line)) as AuditEntry), node })),
    total: counted === undefined || counted.scanned > maxScanned ? null : counted.total,
    limit,
    nextCursor: end === undefined ? null : cursorOf(end),
  };
}

const newestFirst = 'order by at desc, node desc, position desc';

/** The rows of a time, after a cursor. */
const rowsText = `
  from postern.audit where ($1::bigint is null or at >= $1) and ($2::bigint is null or at < $2)
    and ($3::bigint is null or (at, node, position) < ($3, $4::text, $5::bigint)) ${newestFirst}`;

const isWanted = `($7::text is null or strpos(who, $7) > 0) and ($8::text is null or strpos(address, $8) > 0)
  and ($9::text is null or strpos(path, $9) > 0) and ($10::text is null or strpos(action, $10) > 0)
  and ($11::text is null or method = $11) and ($12::boolean is null or done = $12)
  and ($13::text is null or node = $13)`;

const pageText = `
  select at, node, position, line from (select * ${rowsText} limit $6) scanned
  where ${isWanted} ${newestFirst} limit $14`;

/** The last row that a page has looked at, when there are more. */
const endText = `select at, node, position ${rowsText} offset $6 - 1 limit 1`;

const countText = `
  select count(*) filter (where ${isWanted})::int as total, count(*)::int as scanned
  from (select * ${rowsText} limit $6) scanned`;
