import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../../../core/clock.js';
import { Pipeline } from '../../../../core/pipeline/pipeline.js';
import { next, reject, route } from '../../../../core/pipeline/verdict.js';
import { FakeTarget } from '../../pipeline/fake-target.js';
import { recordingLog, TestEngine } from './test-engine.js';

/** An engine that tells which transactions have ended, by their senders. */
async function endings(test: TestContext) {
  const ended: string[] = [];
  const changes = new EventTarget();
  const pipeline = new Pipeline({ log: recordingLog([]), clock: systemClock });
  pipeline.deliverTo('test', 'memory', new FakeTarget('memory', []));
  pipeline.on('test', 'rcptTo', { order: 'route' }, ({ address }) => {
    if (address.local === 'gone') return reject(550, '5.1.1', 'Gone');
    const reply = { code: 251, status: '2.1.5', lines: ['Not here, will\r\nforward'] };
    return route({ target: 'memory', destination: '' }, address.local === 'moved' ? { reply } : {});
  });
  pipeline.watch('test', 'ended', ({ transaction }) => {
    ended.push(transaction.reversePath?.local ?? '<>');
    changes.dispatchEvent(new Event('ended'));
  });
  const engine = await TestEngine.start(test, { pipeline });
  return {
    engine,
    pipeline,
    ended,
    until: async (count: number) => {
      while (ended.length < count) await once(changes, 'ended');
      return ended;
    },
  };
}

describe('the end of a transaction', () => {
  it('is told once, behind an answer, RSET, EHLO or QUIT', async (test) => {
    const { engine, until } = await endings(test);
    const client = await engine.greeted();
    const begin = (name: string) => client.pipeline([`MAIL FROM:<${name}@example.org>`, 'RCPT TO:<a@localhost>']);
    await begin('delivered');
    assert.equal((await client.data('Subject: x\r\n\r\ny\r\n')).code, 250);
    await begin('reset');
    await client.pipeline(['RSET', 'RSET', 'EHLO client.example']);
    await begin('hello');
    await client.command('EHLO client.example');
    await begin('quit');
    await client.command('QUIT');
    assert.deepEqual(await until(4), ['delivered', 'reset', 'hello', 'quit']);
  });

  it('is told when the client has gone', async (test) => {
    const { engine, until } = await endings(test);
    const client = await engine.greeted();
    await client.pipeline(['MAIL FROM:<lost@example.org>', 'RCPT TO:<a@localhost>', 'DATA']);
    client.reset();
    assert.deepEqual(await until(1), ['lost']);
  });

  it('is told when the client has gone before its sender was decided about, and nobody waits for it any more', async (test) => {
    const { engine, pipeline, until } = await endings(test);
    let answer = (): void => undefined;
    let asked = (): void => undefined;
    const isAsked = new Promise<void>((resolve) => (asked = resolve));
    pipeline.on('test', 'mailFrom', { order: 'policy' }, () => {
      asked();
      return new Promise((resolve) => (answer = () => resolve(next())));
    });
    const closed = new Promise<void>((resolve) => pipeline.watch('test', 'closed', () => resolve()));
    const client = await engine.greeted();
    client.write('MAIL FROM:<lost@example.org>\r\n');
    await isAsked;
    client.reset();
    await closed;
    answer();
    assert.deepEqual(await until(1), ['lost']);
    await pipeline.settled();
  });

  it('is not told of a transaction that never began', async (test) => {
    const { engine, ended, until } = await endings(test);
    const client = await engine.greeted();
    await client.pipeline(['RSET', 'MAIL FROM:<nonsense', 'RCPT TO:<a@localhost>', 'RSET']);
    await client.pipeline(['MAIL FROM:<>', 'RCPT TO:<gone@localhost>', 'RSET']);
    await until(1);
    assert.deepEqual(ended, ['<>']);
  });
});

describe('a route with words of its own', () => {
  it('is what the client gets, on one line each', async (test) => {
    const { engine } = await endings(test);
    const client = await engine.greeted();
    await client.command('MAIL FROM:<a@example.org>');
    assert.equal((await client.command('RCPT TO:<moved@localhost>')).raw, '251 2.1.5 Not here, will??forward\r\n');
    assert.equal((await client.command('RCPT TO:<b@localhost>')).raw, '250 2.1.5 Recipient OK\r\n');
    client.close();
  });
});
