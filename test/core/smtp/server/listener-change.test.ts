import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { connect as secure } from 'node:tls';
import { isStartError } from '../../../../core/problem.js';
import { selfSigned } from '../../../support/certificate.js';
import { freePort } from '../../../support/free-port.js';
import { SmtpClient } from '../../../support/smtp-client.js';
import { settingsOf, TestEngine } from './test-engine.js';

const pair = selfSigned();

async function refuses(port: number, host = '127.0.0.1'): Promise<boolean> {
  const socket = connect({ port, host });
  try {
    await once(socket, 'connect');
    return false;
  } catch {
    return true;
  } finally {
    socket.destroy();
  }
}

async function deliverOne(client: SmtpClient): Promise<number> {
  await client.command('MAIL FROM:<a@sender.example>');
  await client.command('RCPT TO:<anna@localhost>');
  return (await client.data('Subject: x\r\n\r\ny\r\n')).code;
}

describe('other listeners, while the server runs', () => {
  it('a new one is opened, and one that is gone lets its sessions end as they like', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [{ port: 0 }] } });
    const old = await engine.greeted();
    const port = engine.port();
    await engine.engine.reconfigure(settingsOf({ listeners: [{ port: 0, name: 'second' }] }));
    assert.deepEqual(
      engine.engine.addresses().map(({ name }) => name),
      ['second'],
    );
    assert.deepEqual(Object.keys(engine.health.components()), ['listener second']);
    // The door is closed a turn later, for those who have just come in.
    await new Promise(setImmediate);
    assert.ok(await refuses(port));
    assert.equal(await deliverOne(old), 250);
    const fresh = await engine.greeted();
    assert.equal(await deliverOne(fresh), 250);
    for (const client of [old, fresh]) {
      await client.command('QUIT');
      client.close();
    }
    assert.equal(engine.delivered.length, 2);
  });

  it('a listener that stays in its place goes on behind the same port with another mode and TLS', async (test) => {
    const port = await freePort();
    const engine = await TestEngine.start(test, { settings: { listeners: [{ port }] } });
    const old = await engine.greeted();
    const next = { port, name: 'mx', mode: 'submission', tls: 'starttls', ...pair } as const;
    await engine.engine.reconfigure(settingsOf({ listeners: [next] }));
    const fresh = await engine.greeted();
    assert.ok((await fresh.command('EHLO client.example')).lines.includes('STARTTLS'));
    assert.ok(!(await old.command('EHLO client.example')).lines.includes('STARTTLS'));
    assert.equal(await deliverOne(old), 250);
    await fresh.command('STARTTLS');
    await fresh.startTls();
    assert.match((await fresh.command('EHLO client.example')).raw, /AUTH/);
    for (const client of [old, fresh]) client.close();
  });

  it('two listeners may exchange their ports', async (test) => {
    const [first, second] = [await freePort(), await freePort()];
    const listeners = (a: number, b: number) => [{ port: a }, { port: b, mode: 'lmtp' as const }];
    const engine = await TestEngine.start(test, { settings: { listeners: listeners(first, second) } });
    await engine.engine.reconfigure(settingsOf({ listeners: listeners(second, first) }));
    const client = await SmtpClient.greeted({ port: first }, 'LHLO client.example');
    client.close();
    assert.deepEqual(
      engine.engine.addresses().map(({ port }) => port),
      [second, first],
    );
  });

  it('0.0.0.0 takes the place of 127.0.0.1 on the same port, and back', async (test) => {
    const port = await freePort();
    const engine = await TestEngine.start(test, { settings: { listeners: [{ port }] } });
    const old = await engine.greeted();
    await engine.engine.reconfigure(settingsOf({ listeners: [{ port, host: '0.0.0.0' }] }));
    assert.equal(engine.engine.addresses()[0]?.host, '0.0.0.0');
    const fresh = await engine.greeted();
    await engine.engine.reconfigure(settingsOf({ listeners: [{ port }] }));
    assert.equal(engine.engine.addresses()[0]?.host, '127.0.0.1');
    for (const client of [old, fresh]) {
      assert.equal(await deliverOne(client), 250);
      client.close();
    }
  });

  it('when one port cannot be had, nothing changes and nothing new stays open', async (test) => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    test.after(() => taken.close());
    const { port } = taken.address() as AddressInfo;
    const [kept, wanted] = [await freePort(), await freePort()];
    const engine = await TestEngine.start(test, { settings: { listeners: [{ port: kept }] } });
    const other = settingsOf({
      listeners: [{ port: wanted }, { port: kept, host: '0.0.0.0', name: 'all' }, { port, name: 'taken' }],
      limits: { messageBytes: 5000 },
    });
    await assert.rejects(engine.engine.reconfigure(other), (error: Error) => {
      assert.ok(isStartError(error));
      assert.match(error.message, /listener taken cannot listen on 127\.0\.0\.1 port \d+: another program uses it/);
      return true;
    });
    assert.ok(await refuses(wanted));
    const client = await engine.greeted();
    assert.ok((await client.command('EHLO client.example')).lines.includes('SIZE 52428800'));
    assert.deepEqual(
      engine.engine.addresses().map(({ name, port: bound, host }) => [name, bound, host]),
      [['mx', kept, '127.0.0.1']],
    );
    assert.equal(engine.health.status(), 'up');
    client.close();
  });

  it('who came in at a door that is not in force yet waits, and is let in with the change', async (test) => {
    const port = await freePort();
    const engine = await TestEngine.start(test, { settings: { listeners: [{ port: 0 }] } });
    const prepared = engine.engine.prepare(settingsOf({ listeners: [{ port: 0 }, { port, name: 'second' }] }));
    await prepared.open();
    const early = await SmtpClient.connect({ port });
    const first = await engine.greeted();
    assert.equal(early.unread, '');
    prepared.commit();
    assert.equal((await early.readReply()).code, 220);
    for (const client of [early, first]) client.close();
  });

  it('two listeners in one place are refused, and so is a file descriptor that comes later', async (test) => {
    const engine = await TestEngine.start(test);
    const port = await freePort();
    const listeners = [{ port }, { port, name: 'again' }];
    await assert.rejects(
      engine.engine.reconfigure(settingsOf({ listeners })),
      /listener again cannot listen on .*: the listener mx does/,
    );
    await assert.rejects(
      engine.engine.reconfigure(settingsOf({ listeners: [{ fd: 7 }] })),
      /only be taken when the server starts/,
    );
    await assert.rejects(TestEngine.create(test, { settings: { listeners } }), /the listener mx does/);
  });

  it('the deadlines of sessions hold when their listener is gone, and stopping the server ends them', async (test) => {
    const engine = await TestEngine.start(test);
    const old = await engine.greeted();
    await engine.engine.reconfigure(settingsOf({ listeners: [{ port: 0, name: 'second' }] }));
    await engine.engine.close(0);
    assert.equal((await old.readReply()).code, 421);
    await old.waitForEnd();
    old.close();
    await engine.untilNoSession();
    assert.deepEqual(engine.health.components(), {});
  });

  it('a handshake that is going on when its listener goes becomes a session', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [{ port: 0, tls: 'implicit', ...pair }] } });
    const raw = connect(engine.port(), '127.0.0.1');
    await once(raw, 'connect');
    // Connections are accepted in their order: behind this one, the other is in as well.
    const behind = await SmtpClient.greeted({ port: engine.port(), tls: true });
    await engine.engine.reconfigure(settingsOf({ listeners: [{ port: 0, name: 'second' }] }));
    const client = new SmtpClient(secure({ socket: raw, rejectUnauthorized: false }));
    assert.equal((await client.readReply()).code, 220);
    assert.equal((await client.command('NOOP')).code, 250);
    for (const one of [client, behind]) one.close();
    await engine.untilNoSession();
  });
});
