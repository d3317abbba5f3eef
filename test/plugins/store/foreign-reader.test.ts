import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { test } from 'node:test';
import { body, deliver, openStore, prologue, recipient } from './delivery-fixture.js';

const python = spawnSync('python3', ['--version']).status === 0;
const script = `
import hashlib, mailbox, sys
box = mailbox.Maildir(sys.argv[1], factory=None, create=False)
box.lock()
for k, m in box.iteritems():
    print(m.get_subdir(), m.get_flags(), m["Subject"], hashlib.sha256(box.get_bytes(k)).hexdigest())
`;

test(
  'another program reads what we deliver',
  { skip: python ? false : 'python3 is not installed, whose mailbox module is the other program' },
  async (t) => {
    const store = await openStore(t);
    const bodies = Array.from({ length: 20 }, (_, n) => Buffer.concat([body, Buffer.from(`number ${n}\r\n`)]));
    for (const content of bodies) await deliver(store, [recipient('ann@example.org')], content);
    const folder = join(store.mail, 'example.org', 'ann');
    const { stdout, stderr, status } = spawnSync('python3', ['-c', script, folder], { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    const expected = bodies.map((content) => `new  hello ${digest(content)}`);
    assert.deepEqual(new Set(stdout.trim().split('\n')), new Set(expected));
  },
);

function digest(content: Buffer): string {
  return createHash('sha256').update(prologue.returnPath).update(prologue.trace).update(content).digest('hex');
}
