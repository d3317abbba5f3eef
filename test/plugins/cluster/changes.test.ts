import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../../support/ending.js';
import { type InProcessServer, startInProcess } from '../../support/in-process-server.js';
import { skipWithout } from '../../support/peers.js';
import { Postgres } from '../../support/postgres.js';
import { SmtpClient } from '../../support/smtp-client.js';
import { untilTrue } from '../../support/until.js';
import { fillTables } from './cluster-fixture.js';

const password = 'a long enough secret';
/** A role that may be kept from ringing. */
const role = `create role node login;
grant usage on schema postern to node;
grant all on all tables in schema postern to node;
grant all on all sequences in schema postern to node;`;

describe('a change that is made at one node', { skip: skipWithout('postgres') }, () => {
  const ending = suiteEnding();
  let server: Postgres;
  let here: InProcessServer;
  let there: InProcessServer;
  before(async () => {
    server = await Postgres.start(ending, { durable: true, fill: fillTables });
    await server.psql(role, 'template');
    const config = (node: string): string => `{
      smtp: { listeners: [{ mode: 'submission', port: 0, allowPlaintextAuth: true }] },
      plugins: { cluster: { node: '${node}', database: { hosts: ['${server.folder}'], name: 'template', user: 'node', tls: 'off' } } },
    }`;
    here = await startInProcess(ending, config('mx1'));
    there = await startInProcess(ending, config('mx2'));
  });

  const signIn = async (name: string): Promise<{ readonly client: SmtpClient; readonly code: number }> => {
    const client = await SmtpClient.greeted({ port: there.portOf('submission') });
    const words = Buffer.from(`\0${name}@localhost\0${password}`).toString('base64');
    return { client, code: (await client.command(`AUTH PLAIN ${words}`)).code };
  };

  /** @param withinMs in which each has to be in force at the other node */
  async function changesCount(name: string, withinMs: number): Promise<void> {
    await here.admin.json('/users', { json: { username: name, password } }, 201);
    let client: SmtpClient | undefined;
    ending.after(() => client?.close());
    await untilTrue(
      'the new user may sign in',
      async () => {
        client?.close();
        const signedIn = await signIn(name);
        client = signedIn.client;
        return signedIn.code === 235;
      },
      withinMs,
    );
    const mail = async (): Promise<number> => {
      const { code } = (await client?.command(`MAIL FROM:<${name}@localhost>`)) ?? { code: 0 };
      if (code === 250) await client?.command('RSET');
      return code;
    };
    assert.equal(await mail(), 250);
    await here.admin.json(`/users/${name}@localhost`, { method: 'DELETE' });
    await untilTrue(
      'the session of the removed user ends at its next MAIL',
      async () => (await mail()) === 421,
      withinMs,
    );

    const destination = `/client/destinations/${name}.example`;
    await here.admin.json(destination, { method: 'PUT', json: { suspendFor: 3600 } });
    await untilTrue(
      'the destination is suspended',
      async () => {
        // Before it is known, there is no such destination.
        const found = await there.admin.json(destination).catch(() => undefined);
        return /"suspended":\s*true/.test(JSON.stringify(found) ?? '');
      },
      withinMs,
    );
  }

  test('counts at the other one at once: a user, a removed user with a session, a suspended destination', () =>
    changesCount('ann', 10_000));

  test('counts there within half a minute when nobody tells of it', async () => {
    await server.psql('revoke execute on function pg_catalog.pg_notify from public', 'template');
    await assert.rejects(server.psql("set role node; select pg_notify('x', 'y')", 'template'));
    await changesCount('bob', 60_000);
  });
});
