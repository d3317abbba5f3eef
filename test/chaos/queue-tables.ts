import type pg from 'pg';

/** What the database did with the lease of a recipient. */
export interface RecipientLease {
  readonly uid: string;
  readonly address: string;
  readonly token: string;
  readonly session: string;
  /** Milliseconds since 1970, by the clock of the database. */
  readonly begun: number;
  /** Null while it is held. */
  readonly ended: number | null;
  /** It was taken away, and no outcome has come. */
  readonly lost: boolean;
}

/** A recipient as the queue has it at the end. */
export interface RecipientEnd {
  readonly uid: string;
  /** As in the header, without its brackets. */
  readonly id: string;
  readonly address: string;
  readonly state: number;
}

/** Writes down all leases and what came of them, beside the tables of the queue, which forget finished entries. */
export const leaseLog = `
create schema chaos;
create table chaos.lease (
  uid text collate "C" not null, idx smallint not null, token bigint not null, session text not null,
  begun timestamptz not null default clock_timestamp(), ended timestamptz, how text,
  id text not null, address text not null, state smallint, primary key (uid, idx, token));
create function chaos.note() returns trigger language plpgsql as $$
begin
  if old.state = 0 and (new.state <> 0 or new.token <> old.token) then
    update chaos.lease set ended = clock_timestamp(), state = new.state,
      how = case when new.last_token = old.token then 'lost' else 'settled' end
    where uid = old.uid and idx = old.idx and token = old.token;
  end if;
  if new.state = 0 and (old.state <> 0 or new.token <> old.token) then
    insert into chaos.lease (uid, idx, token, session, id, address)
    select new.uid, new.idx, new.token, new.session, trim(both '<>' from coalesce(e.message_id, '')), new.address
    from postern.entry e where e.uid = new.uid;
  end if;
  if old.state in (1, 2) and new.state <> 0 and old.last_token > 0 and new.last_token is distinct from old.last_token then
    update chaos.lease set how = 'late', state = new.state where uid = old.uid and idx = old.idx and token = old.last_token;
  end if;
  return null;
end $$;
create trigger note after update on postern.recipient for each row
  when (old.state = 0 or new.state = 0 or old.last_token is not null) execute function chaos.note();
`;

export async function recipientLeases(client: pg.ClientBase): Promise<readonly RecipientLease[]> {
  const { rows } = await client.query<RecipientLease>(
    `select uid, address, token::text, session, extract(epoch from begun)::float8 * 1000 as begun,
       extract(epoch from ended)::float8 * 1000 as ended, how is not null and how = 'lost' as lost
     from chaos.lease`,
  );
  return rows;
}

export async function recipientEnds(client: pg.ClientBase): Promise<readonly RecipientEnd[]> {
  const { rows } = await client.query<RecipientEnd>(
    `select r.uid, trim(both '<>' from coalesce(e.message_id, '')) as id, r.address, r.state::int
     from postern.recipient r join postern.entry e on e.uid = r.uid
     union all
     select uid, id, address, state::int from (
       select distinct on (uid, idx) uid, idx, id, address, state from chaos.lease order by uid, idx, state desc nulls last) l
     where state is not null and not exists (
       select 1 from postern.recipient r where r.uid = l.uid and r.idx = l.idx)`,
  );
  return rows;
}

/** Recipients that are in flight or wait. */
export async function waitingCount(client: pg.ClientBase): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    'select count(*)::int as count from postern.recipient where state in (0, 1, 2)',
  );
  return rows[0]?.count ?? 0;
}

/** All leases of a session were taken away, and others have had what they were for. */
export async function areTakenOver(client: pg.ClientBase, session: string): Promise<boolean> {
  const { rows } = await client.query<{ done: boolean }>(
    `select count(*) > 0 and bool_and(exists (
       select from chaos.lease o where o.uid = l.uid and o.idx = l.idx and o.session <> l.session and o.begun > l.begun)) as done
     from chaos.lease l where session = $1 and how = 'lost'`,
    [session],
  );
  return rows[0]?.done ?? false;
}
