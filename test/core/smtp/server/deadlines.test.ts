import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { describe, it } from 'node:test';
import type { Spool, SpoolWriter } from '../../../../core/spool/spool.js';
import { reply } from '../../../../core/smtp/protocol/replies.js';
import { SmtpClient } from '../../../support/smtp-client.js';
import { TestClock, TestEngine } from './test-engine.js';

const forever = new Promise<never>(() => undefined);

describe('deadlines', () => {
  it('S24 a command line has 300 seconds in all, however it drips', async (test) => {
    const clock = new TestClock();
    const engine = await TestEngine.start(test, { clock });
    const client = await engine.greeted();
    clock.advance(299);
    assert.equal((await client.command('NOOP')).code, 250);
    for (let n = 0; n < 6; n += 1) {
      client.write('N');
      await engine.untilReceived(client);
      clock.advance(n < 5 ? 50 : 51);
    }
    assert.match((await client.readReply()).raw, /^421 4\.4\.2 /);
    await client.waitForEnd();
    client.close();
  });

  it('S24 DATA that is slower than 500 bytes a second is cut after a minute', async (test) => {
    const clock = new TestClock();
    const engine = await TestEngine.start(test, { clock });
    const client = await engine.greeted();
    await client.command('MAIL FROM:<>');
    await client.command('RCPT TO:<postmaster>');
    await client.command('DATA');
    client.write(`Subject: x\r\n\r\n${'x'.repeat(900)}\r\n`.repeat(40));
    await engine.untilReceived(client);
    clock.advance(61);
    client.write('more\r\n');
    await engine.untilReceived(client);
    await engine.untilSwept();
    assert.equal(client.unread, '');
    clock.advance(30);
    assert.match((await client.readReply()).raw, /^421 4\.4\.2 /);
    await client.waitForEnd();
    assert.equal(engine.delivered.length, 0);
    await engine.untilSpoolIsEmpty();
    client.close();
  });

  it('S27 a hook that never answers is 451 and the end', async (test) => {
    const clock = new TestClock();
    const engine = await TestEngine.start(test, {
      clock,
      decide: (stage) => (stage === 'rcptTo' ? forever : undefined),
    });
    const client = await engine.greeted();
    client.write('MAIL FROM:<>\r\nRCPT TO:<postmaster>\r\n');
    assert.equal((await client.readReply()).code, 250);
    clock.advance(31);
    assert.match((await client.readReply()).raw, /^451 4\.3\.0 /);
    await client.waitForEnd();
    client.close();
  });

  for (const where of ['create', 'finish'] as const) {
    it(`S27 a spool that never answers to ${where} is 451`, async (test) => {
      const clock = new TestClock();
      const writer: SpoolWriter = {
        size: 0,
        write: () => undefined,
        finish: () => forever,
        discard: () => Promise.resolve(),
      };
      const spool: Spool = { create: () => (where === 'create' ? forever : Promise.resolve(writer)) };
      const engine = await TestEngine.start(test, { clock, spool, settings: { limits: { deliverySeconds: 30 } } });
      const client = await engine.greeted();
      await client.command('MAIL FROM:<>');
      await client.command('RCPT TO:<postmaster>');
      client.write('DATA\r\n');
      if (where === 'finish') {
        assert.equal((await client.readReply()).code, 354);
        client.write('.\r\n');
      }
      await engine.untilReceived(client);
      await engine.untilSwept();
      clock.advance(31);
      assert.match((await client.readReply()).raw, /^451 4\.3\.0 /);
      client.close();
    });
  }

  it('S27 a delivery that takes too long is asked for its answer, and the session goes on', async (test) => {
    const clock = new TestClock();
    const engine = await TestEngine.start(test, {
      clock,
      settings: { limits: { deliverySeconds: 30 } },
      deliver: async (_, timeout) => {
        const answer = reply(451, '4.3.0', 'Too slow');
        await timeout?.for(new Promise(() => undefined)).catch(() => undefined);
        return { summary: answer, replies: [answer], recipients: [] };
      },
    });
    const client = await engine.greeted();
    await client.command('MAIL FROM:<>');
    await client.command('RCPT TO:<postmaster>');
    await client.command('DATA');
    client.write('.\r\n');
    await engine.untilReceived(client);
    await engine.untilSwept();
    clock.advance(31);
    assert.equal((await client.readReply()).raw, '451 4.3.0 Too slow\r\n');
    assert.equal((await client.command('NOOP')).code, 250);
    client.close();
  });

  it('a client that was told goodbye and stays is cut', async (test) => {
    const clock = new TestClock();
    const engine = await TestEngine.start(test, { clock });
    const socket = connect({ port: engine.port(), host: '127.0.0.1', allowHalfOpen: true });
    const client = new SmtpClient(socket);
    await client.readReply();
    assert.equal((await client.command('GET / HTTP/1.1')).code, 421);
    await client.waitForEnd();
    await engine.untilSwept();
    assert.equal(engine.logged('closed').length, 0);
    clock.advance(6);
    await engine.untilLogged('closed');
    client.close();
  });

  it('a client that has said QUIT is not waited for', async (test) => {
    const engine = await TestEngine.start(test, { clock: new TestClock() });
    const socket = connect({ port: engine.port(), host: '127.0.0.1', allowHalfOpen: true });
    const client = new SmtpClient(socket);
    await client.readReply();
    assert.equal((await client.command('QUIT')).code, 221);
    await client.waitForEnd();
    await engine.untilLogged('closed');
    client.close();
  });
});
