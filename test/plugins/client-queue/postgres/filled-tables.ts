import type pg from 'pg';
import { envelopeText } from '../../../../plugins/client-queue/postgres/entry-rows.js';
import { newEntry } from '../../../kit/relay-queue/entries.js';

const insertedTogether = 50_000;

/**
 * Fills the tables with deferred entries over 20,000 destinations, 30 % of them one. Every hundredth message is of one
 * sender, every twentieth has a second recipient, every ten thousandth is held.
 */
export async function fillEntries(client: pg.ClientBase, entries: number, now: number): Promise<void> {
  const { rest } = JSON.parse(envelopeText(newEntry(now))) as { readonly rest: string };
  const replied = { code: 451, status: '4.7.1', text: 'greylisted, try again later', host: 'mx.one.example', at: now };
  const attempt = {
    at: now,
    ms: 150,
    destination: 'one.example',
    host: 'mx.one.example[192.0.2.1]:25',
    tls: 'TLSv1.3',
    recipients: ['rcpt@one.example'],
    outcome: 'deferred',
    reply: replied,
  };
  const history = JSON.stringify([attempt, attempt, attempt]);
  for (let from = 0; from < entries; from += insertedTogether) {
    const to = Math.min(entries, from + insertedTogether) - 1;
    await client.query(filling, [from, to, now, entries, rest, history]);
  }
  await client.query('vacuum analyze');
}

const filling = `
  with made as materialized (
    select n, lpad(n::text, 10, '0') || substr(md5(n::text), 1, 10) as uid,
      case when n % 100 = 0 then 'batch@home.example'
        else 's' || n % 49999 || '@home' || n % 49999 % 997 || '.example' end as sender,
      case when n % 10 < 3 then 'large.example' else 'd' || (n::bigint * 7919) % 19999 || '.example' end as destination,
      $3::bigint - ((($4::bigint - n) * 432000000) / $4::bigint) as queued_at,
      $3::bigint + (hashint4(n) & 16383) * 1000 as due,
      case when n % 10 < 3 then 'greylisted, try again later' when n % 50000 = 49999 then 'rare'
        else 'reason number ' || n % 37 end as reply
    from generate_series($1::int, $2::int) n),
  entries as (
    insert into postern.entry (uid, birth, sender, subject, message_id, size, queued_at, expires_at, warn_at,
      last_attempt, ages_at, history, envelope, body, hold)
    select uid, uid, sender, 'Order ' || n || ' of your shop', '<' || uid || '@home.example>', 5000 + n % 1000, queued_at,
      queued_at + 864000000, null, queued_at + 60000, queued_at + 864000000, $6,
      json_build_object('sender', sender,
        'addresses', case when n % 20 = 7
          then json_build_array(json_build_array('u' || n || '@' || destination, destination),
            json_build_array('u' || n || '@d' || n % 19999 || '.example', 'd' || n % 19999 || '.example'))
          else json_build_array(json_build_array('u' || n || '@' || destination, destination)) end,
        'rest', $5::text),
      uid, case when n % 10000 = 9999 then 'wait' end
    from made)
  insert into postern.recipient (uid, idx, queued_at, address, destination, state, lane, turn, due, attempts, code, status, reply,
    host, replied_at, reason)
  select uid, idx, queued_at, 'u' || n || '@' || place, place, case when n % 10000 = 9999 then 3 else 1 end, 1, due, due, 3, 451,
    '4.7.1', reply, 'mx.' || place, queued_at + 60000, '451 4.7.1 ' || reply
  from made, lateral (select 0 as idx, destination as place
    union all select 1, 'd' || n % 19999 || '.example' where n % 20 = 7) r`;
