import type pg from 'pg';
import type { LeaseChange } from './verdict.js';

/** States of a row. */
export const waiting = 0;
export const leased = 1;
export const done = 2;

/** The simplest queue that has leases: what the chaos run works on as long as there is no other. */
export const tables = `
create schema chaos;
create table chaos.job (
  id text primary key,
  state smallint not null default ${waiting},
  token bigint,
  last_token bigint,
  session text,
  claimed_at timestamptz
) with (fillfactor = 50);
create index job_waiting on chaos.job (id) where state = ${waiting};
create index job_leased on chaos.job (session) where state = ${leased};

create table chaos.lease_change (
  id text not null,
  token bigint not null,
  change text not null,
  at timestamptz not null default clock_timestamp()
);
create function chaos.note() returns trigger language plpgsql as $$
begin
  if old.state = ${leased} and (new.state <> ${leased} or new.token <> old.token) then
    insert into chaos.lease_change values
      (old.id, old.token, case new.state when ${done} then 'settled' else 'lost' end);
  end if;
  if new.state = ${leased} and (old.state <> ${leased} or new.token <> old.token) then
    insert into chaos.lease_change values (new.id, new.token, 'begun');
  end if;
  return null;
end $$;
create trigger note after update on chaos.job for each row execute function chaos.note();
`;

export async function putIn(client: pg.ClientBase, ids: readonly string[]): Promise<void> {
  await client.query('insert into chaos.job (id) select unnest($1::text[]) on conflict do nothing', [ids]);
}

export async function open(client: pg.ClientBase): Promise<ReadonlySet<string>> {
  const { rows } = await client.query<{ id: string }>('select id from chaos.job where state <> $1', [done]);
  return new Set(rows.map(({ id }) => id));
}

export async function isTakenAway(client: pg.ClientBase, id: string): Promise<boolean> {
  const { rowCount } = await client.query("select 1 from chaos.lease_change where id = $1 and change = 'lost'", [id]);
  return rowCount !== 0;
}

export async function leaseChanges(client: pg.ClientBase): Promise<readonly LeaseChange[]> {
  const { rows } = await client.query<LeaseChange>(
    'select id, token::text, change, extract(epoch from at)::float8 * 1000 as at from chaos.lease_change',
  );
  return rows;
}
