import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { shards } from '../../../plugins/client-queue/queue/bodies.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { outboundFixture, type Enqueued } from './outbound-fixture.js';

const local: Enqueued['to'] = [
  { address: 'b@here.example', destination: 'target:box', hop: { target: 'box', destination: 'b' } },
];
const large = `large\r\n\r\n${'x'.repeat(70)}\r\n`.repeat(3000);

for (const [title, message] of [
  ['for another server', { to: ['a@one.example'] }],
  ['that is large', { to: ['a@one.example'], text: large }],
  ['for a target of this server', { to: local }],
] as const) {
  test(`a message ${title} that has vanished from the disk is held for an operator, and not returned`, async (t) => {
    const sink = await SmtpSink.start(t);
    const fixture = await outboundFixture(t, {
      options: { port: sink.port },
      deliver: async ({ content, recipients: [to] }) => {
        for await (const chunk of content()) assert.ok(chunk.length > 0);
        assert.ok(to !== undefined);
        return [{ recipient: { ...to, discarded: false }, outcome: 'delivered' }];
      },
    });
    const uid = await fixture.enqueue(message);
    await fixture.queue.housekeep(Date.now());
    for (const shard of shards) await rm(join(fixture.folder, 'queue', shard, `${uid}.eml`), { force: true });
    await fixture.outbound.start();
    const { state, hold, attempts, notices } = await fixture.tried(uid);
    assert.deepEqual([state, attempts, notices.length, sink.messages.length], ['held', 1, 0, 0]);
    assert.match(hold ?? '', /missing or damaged/);
  });
}
