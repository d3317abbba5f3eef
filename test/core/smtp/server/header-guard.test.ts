import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HeaderGuard } from '../../../../core/smtp/server/data.js';
import type { Recipient } from '../../../../core/pipeline/transaction.js';

const limits = { headerFields: 10_000, headerBytes: 1_000_000, hops: 100 };

/** Recipients that count how often their addresses are read. */
function countedRecipients(count: number): { readonly recipients: readonly Recipient[]; readonly reads: () => number } {
  let reads = 0;
  const recipients = Array.from({ length: count }, (_, number) => ({
    get address() {
      reads += 1;
      return { address: `User+${number}@localhost` };
    },
  })) as unknown as readonly Recipient[];
  return { recipients, reads: () => reads };
}

test('F-S8 many Delivered-To lines cost the same however many recipients there are', () => {
  const { recipients, reads } = countedRecipients(1000);
  const guard = new HeaderGuard(limits, recipients);
  guard.add(Buffer.from('Delivered-To: somebody@elsewhere.example\r\n'.repeat(5000)));
  assert.equal(guard.violation, undefined);
  assert.ok(reads() <= 1000, `${reads()} addresses were read`);
  guard.add(Buffer.from('Delivered-To:  USER+999@localhost \r\n'));
  assert.equal(guard.violation, 'loop');
});
