import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Lease } from '../../../core/contracts/relay-queue-store.js';
import { clientFailure } from '../../../core/smtp/client/failure.js';
import type { ClientSession } from '../../../core/smtp/client/session.js';
import { DeadHosts } from '../../../plugins/client-queue/delivery/dead-hosts.js';
import { attemptRemotely } from '../../../plugins/client-queue/delivery/remote-attempt.js';
import { ReplyClassification } from '../../../plugins/client-queue/delivery/reply-classification.js';
import { HandClock } from '../../support/hand-clock.js';
import { newEntry } from '../../kit/relay-queue/entries.js';

const nobody = (): never => assert.fail('nobody sends it');

test('a lease that gets its connection too late does not send', async () => {
  const clock = new HandClock();
  const server = {
    address: '192.0.2.1',
    port: 25,
    protocol: 'smtp',
    helloName: 'a.example',
    tls: { mode: 'never' },
  } as const;
  const entry = newEntry(clock.now());
  const recipients = [{ index: 0, address: 'rcpt@one.example', attempts: 0 }];
  const lease: Lease = { uid: entry.uid, recipients, destination: 'one.example', entry, token: 1, manual: false };
  const classification = new ReplyClassification();
  let released = 0;
  const session = { send: nobody } as unknown as ClientSession;
  const { verdicts } = await attemptRemotely({ lease, since: clock.monotonic() }, 1, {
    pool: {
      lease: () => {
        clock.advance(60 * 60);
        return Promise.resolve({ session, reused: false, release: () => (released += 1) });
      },
    },
    hops: { find: () => Promise.resolve({ outcome: 'found', site: 'site:mx', servers: [server] }) },
    dead: new DeadHosts(clock),
    classification: () => classification,
    clock,
    signal: new AbortController().signal,
    sessions: new Set(),
    content: () => Promise.resolve({ source: Buffer.from('x') }),
    sevenBitContent: () => Promise.resolve(undefined),
  });
  assert.equal(verdicts.size, 0, 'it is given back');
  assert.equal(released, 1);
});

test('a dead server is called once for all that an operator wants to have tried, and not for the rest', async () => {
  const clock = new HandClock();
  const dead = new DeadHosts(clock);
  const classification = new ReplyClassification();
  const [address, port] = ['192.0.2.1', 25];
  const server = { address, port, protocol: 'smtp', helloName: 'mail.example.org', tls: { mode: 'never' } } as const;
  let calls = 0;
  const attempt = async (manual: boolean): Promise<string> => {
    const entry = newEntry(clock.now());
    const recipients = [{ index: 0, address: 'rcpt@one.example', attempts: 0 }];
    const lease: Lease = { uid: entry.uid, recipients, destination: 'one.example', entry, token: 1, manual };
    const { verdicts } = await attemptRemotely({ lease, since: clock.monotonic() }, 1, {
      pool: {
        lease: () => {
          calls += 1;
          const refused = { code: 451, status: '4.4.1', text: 'Connection refused' };
          return Promise.reject(clientFailure({ kind: 'connect', step: 'connect', ...refused }));
        },
      },
      hops: { find: () => Promise.resolve({ outcome: 'found', site: 'site:mx', servers: [server] }) },
      dead,
      classification: () => classification,
      clock,
      signal: new AbortController().signal,
      sessions: new Set(),
      content: () => Promise.resolve({ source: Buffer.from('x') }),
      sevenBitContent: () => Promise.resolve(undefined),
    });
    return `${verdicts.get(0)?.action} ${verdicts.get(0)?.status}`;
  };
  for (const [manual, called] of [
    [false, 1],
    [false, 1],
    [true, 2],
    [true, 2],
    [false, 2],
  ] as const) {
    assert.equal(await attempt(manual), 'defer 4.4.1');
    assert.equal(calls, called);
  }
  clock.advance(121);
  await attempt(true);
  assert.equal(calls, 3);
});

test('what one server has said is kept with its name when the other cannot be reached', async () => {
  const clock = new HandClock();
  const classification = new ReplyClassification();
  const about = { port: 25, protocol: 'smtp', helloName: 'mail.example.org', tls: { mode: 'never' } } as const;
  const servers = [
    { address: '192.0.2.1', host: 'mx1.one.example', ...about },
    { address: '192.0.2.2', host: 'mx2.one.example', ...about },
  ];
  const blocklisted = { code: 554, status: '5.7.1', text: 'Your address is on a blocklist' };
  const failures = new Map([
    ['192.0.2.1', clientFailure({ kind: 'reply', step: 'greeting', permanent: true, ...blocklisted })],
    ['192.0.2.2', clientFailure({ kind: 'connect', step: 'connect', code: 451, status: '4.4.1', text: 'refused' })],
  ]);
  const entry = newEntry(clock.now());
  const recipients = [{ index: 0, address: 'rcpt@one.example', attempts: 0 }];
  const lease: Lease = { uid: entry.uid, recipients, destination: 'one.example', entry, token: 1, manual: false };
  const { verdicts, host } = await attemptRemotely({ lease, since: clock.monotonic() }, 1, {
    pool: { lease: ({ address }) => Promise.reject(failures.get(address) ?? new Error('no such server')) },
    hops: { find: () => Promise.resolve({ outcome: 'found', site: 'site:mx', servers }) },
    dead: new DeadHosts(clock),
    classification: () => classification,
    clock,
    signal: new AbortController().signal,
    sessions: new Set(),
    content: () => Promise.resolve({ source: Buffer.from('x') }),
    sevenBitContent: () => Promise.resolve(undefined),
  });
  const { action, code, text, host: said } = verdicts.get(0) ?? {};
  assert.deepEqual(
    [action, code, text, said],
    ['defer', 554, 'Your address is on a blocklist', 'mx1.one.example'],
    'the other server may still take it',
  );
  assert.equal(host, 'mx1.one.example[192.0.2.1]:25');
});
