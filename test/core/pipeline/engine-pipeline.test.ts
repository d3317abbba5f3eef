import assert from 'node:assert/strict';
import { buffer } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import type { Delivery, DeliveryTarget } from '../../../core/pipeline/delivery-target.js';
import { Pipeline } from '../../../core/pipeline/pipeline.js';
import { accept, next, reject, route } from '../../../core/pipeline/verdict.js';
import { recordingLog, TestEngine } from '../smtp/server/test-engine.js';

/** A target that keeps messages in memory; recipients named `full` are deferred. */
function memoryTarget(kept: string[]): DeliveryTarget {
  return {
    start: (_, recipients) => {
      let text = '';
      const delivery: Delivery = {
        body: async (message) => {
          await message.prepare();
          text = (await buffer(message.open(message.messageOffset))).toString('latin1');
        },
        commit: () => {
          kept.push(text);
          return Promise.resolve(
            recipients.map((recipient) =>
              recipient.address.local === 'full'
                ? { recipient, outcome: 'deferred', code: 452, status: '4.2.2', text: 'Mailbox full' }
                : { recipient, outcome: 'delivered' },
            ),
          );
        },
        abort: () => Promise.resolve(),
      };
      return Promise.resolve(delivery);
    },
  };
}

function localPipeline(kept: string[]): Pipeline {
  const pipeline = new Pipeline({ log: recordingLog([]), clock: systemClock });
  pipeline.deliverTo('test', 'memory', memoryTarget(kept));
  pipeline.on('test', 'rcptTo', { order: 'route' }, ({ address }) => {
    if (address.local === 'broken') throw new Error('/srv/secret');
    if (address.local === 'unknown') return reject(550, '5.1.1', 'No such mailbox');
    return address.domain === 'localhost' ? route({ target: 'memory', destination: 'local' }) : next();
  });
  pipeline.on('test', 'auth', {}, ({ username, password }) => (password === 'secret' ? accept({ username }) : next()));
  return pipeline;
}

describe('the engine on the real pipeline and spool', () => {
  it('takes, refuses and stores as the hooks say', async (test) => {
    const kept: string[] = [];
    const engine = await TestEngine.start(test, { pipeline: localPipeline(kept) });
    const client = await engine.greeted();
    assert.equal((await client.command('MAIL FROM:<a@example.org>')).code, 250);
    assert.equal((await client.command('RCPT TO:<unknown@localhost>')).raw, '550 5.1.1 No such mailbox\r\n');
    assert.match((await client.command('RCPT TO:<broken@localhost>')).raw, /^451 4\.3\.0 (?!.*srv)/);
    assert.match((await client.command('RCPT TO:<a@elsewhere.example>')).raw, /^55[04] 5\.7\.1 /);
    assert.equal((await client.command('RCPT TO:<anna@localhost>')).code, 250);
    assert.equal((await client.data('Subject: x\r\n\r\n.y\r\n')).code, 250);
    assert.deepEqual(kept, ['Subject: x\r\n\r\n.y\r\n']);
    await engine.untilSpoolIsEmpty();
    client.close();
  });

  it('S28 LMTP answers for each recipient', async (test) => {
    const engine = await TestEngine.start(test, {
      pipeline: localPipeline([]),
      settings: { listeners: [{ port: 0, mode: 'lmtp' }] },
    });
    const client = await engine.greeted(0, 'LHLO client.example');
    const lines = [
      'MAIL FROM:<>',
      'RCPT TO:<a@localhost>',
      'RCPT TO:<full@localhost>',
      'RCPT TO:<a@localhost>',
      'DATA',
    ];
    await client.pipeline(lines);
    client.write('Subject: x\r\n\r\ny\r\n.\r\n');
    assert.deepEqual(
      (await client.readReplies(3)).map(({ code }) => code),
      [250, 452, 250],
    );
    assert.equal((await client.command('NOOP')).code, 250);
    client.close();
  });

  it('S33 no form of a foreign recipient is relayed for a stranger', async (test) => {
    const engine = await TestEngine.start(test, { pipeline: localPipeline([]) });
    const forms = [
      'a@elsewhere.example',
      'a%elsewhere.example@other.example',
      'elsewhere.example!a@other.example',
      '"a@elsewhere.example"@other.example',
      '@localhost:a@elsewhere.example',
      '@localhost,@other.example:a@elsewhere.example',
      'a@[192.0.2.1]',
    ];
    for (const sender of ['<>', '<anna@localhost>', '<a@elsewhere.example>']) {
      const client = await engine.greeted();
      await client.command(`MAIL FROM:${sender}`);
      for (const form of forms) assert.match((await client.command(`RCPT TO:<${form}>`)).raw, /^55[04] 5\.7\.1 /, form);
      client.close();
    }
  });
});
