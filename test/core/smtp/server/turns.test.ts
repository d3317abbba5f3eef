import assert from 'node:assert/strict';
import { performance } from 'node:perf_hooks';
import { describe, it } from 'node:test';
import type { Decision } from '../../../../core/pipeline/transaction-pipeline.js';
import { SmtpClient } from '../../../support/smtp-client.js';
import { TestEngine } from './test-engine.js';

const taken: Decision = { outcome: 'pass', hop: { target: 'test', destination: 'test' } };
const recipients = 200;
const rounds = Array.from({ length: 2 }, () =>
  ['MAIL FROM:<a@example.org>', ...Array<string>(recipients).fill('RCPT TO:<anna@localhost>'), 'RSET'].join('\r\n'),
);

/** An engine whose recipients cost half a millisecond each, and the most of them in one turn of the event loop. */
async function countingEngine(
  test: Parameters<typeof TestEngine.start>[0],
  decide: () => Decision | Promise<Decision>,
) {
  const counted = { now: 0, most: 0, all: 0, isOver: false };
  const nextTurn = (): void => {
    counted.most = Math.max(counted.most, counted.now);
    counted.now = 0;
    if (!counted.isOver) setImmediate(nextTurn);
  };
  const engine = await TestEngine.start(test, {
    decide: (stage) => {
      if (stage !== 'rcptTo') return undefined;
      const until = performance.now() + 0.5;
      while (performance.now() < until);
      counted.now += 1;
      counted.all += 1;
      return decide();
    },
  });
  nextTurn();
  return { engine, counted };
}

describe('turns of sessions', () => {
  const kinds = { 'at once': () => taken, 'after a promise': () => Promise.resolve(taken) };
  for (const [kind, decide] of Object.entries(kinds)) {
    it(`sessions that send many commands at once leave turns to another one; decisions come ${kind}`, async (test) => {
      const { engine, counted } = await countingEngine(test, decide);
      const address = { port: engine.port(), localAddress: '127.0.0.3' };
      const busy = await Promise.all(Array.from({ length: 6 }, () => SmtpClient.greeted(address)));
      const other = await engine.greeted();
      for (const client of busy) client.write(`${rounds.join('\r\n')}\r\n`);
      for (const line of ['MAIL FROM:<b@example.org>', 'NOOP', 'RSET']) {
        assert.equal((await other.command(line)).code, 250);
      }
      const before = counted.all;
      const all = await Promise.all(busy.map((client) => client.readReplies(rounds.length * (recipients + 2))));
      counted.isOver = true;
      assert.ok(all.flat().every(({ code }) => code === 250));
      const total = busy.length * rounds.length * recipients;
      assert.ok(before < total / 2, `answered after ${before} of ${total} recipients`);
      assert.ok(counted.most <= 100, `${counted.most} recipients in one turn of the event loop`);
      for (const client of [...busy, other]) client.close();
    });
  }

  it('recipients that are reset, and commands without a message, count: in the end the session is closed', async (test) => {
    const limits = { recipients: 10, commandsWithoutMessage: 10 };
    const engine = await TestEngine.start(test, { settings: { limits } });
    const client = await engine.greeted();
    const send = async (reset: boolean): Promise<void> => {
      const lines = ['MAIL FROM:<a@example.org>', ...Array<string>(5).fill('RCPT TO:<anna@localhost>')];
      for (const { code } of await client.pipeline(lines)) assert.equal(code, 250);
      assert.equal((await client.command(reset ? 'RSET' : 'DATA')).code, reset ? 250 : 354);
      if (!reset) assert.equal((await client.command('Subject: Hi\r\n\r\nHi\r\n.')).code, 250);
    };
    for (let round = 0; round < 6; round += 1) await send(false);
    await send(true);
    await send(true);
    const replies = await client.pipeline(Array<string>(7).fill('NOOP'));
    assert.deepEqual(
      replies.map(({ code }) => code),
      [250, 250, 250, 250, 250, 250, 421],
    );
    client.close();
  });

  it('a chunk that ends with the turn of its session is a whole message', async (test) => {
    const { engine, counted } = await countingEngine(test, () => taken);
    const client = await engine.greeted();
    const text = 'Subject: Hi\r\n\r\nHi\r\n';
    const octets = text.replace(/[^]/g, (octet) => `BDAT 1\r\n${octet}`);
    const lines = ['MAIL FROM:<a@example.org>', ...Array<string>(20).fill('RCPT TO:<anna@localhost>')];
    client.write(`${lines.join('\r\n')}\r\n${octets}BDAT 0 LAST\r\nQUIT\r\n`);
    const replies = await client.readReplies(lines.length + text.length + 2);
    counted.isOver = true;
    assert.deepEqual([...new Set(replies.map(({ code }) => code))], [250, 221]);
    assert.equal(engine.delivered[0]?.text, text);
    client.close();
  });
});
