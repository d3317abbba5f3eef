import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import type { DeliveryTarget } from '../../../core/pipeline/delivery-target.js';
import { parsePath } from '../../../core/mime/address.js';
import { isProblem, problem } from '../../../core/problem.js';
import { AttemptLimiter } from '../../../core/auth/rate.js';
import type { Decision } from '../../../core/pipeline/transaction-pipeline.js';
import { Pipeline } from '../../../core/pipeline/pipeline.js';
import type { SmtpSession, Transaction } from '../../../core/pipeline/transaction.js';
import { next, route } from '../../../core/pipeline/verdict.js';
import { recipientHook, signInHook } from '../../../plugins/users/hooks.js';
import { SignedInSessions, SignIns } from '../../../plugins/users/sign-ins.js';
import { cheapHash } from '../../core/auth/cheap-hash.js';
import type { Ending } from '../../support/ending.js';
import { openSite, silent, user, type SiteInput } from './users-site.js';

const users = [
  user('anna@example.org', { aliases: ['info@example.org'], passwordHash: cheapHash('right') }),
  user('postmaster@example.org'),
  user('dora@example.org', { disabled: true, passwordHash: cheapHash('right') }),
];

const mailbox: DeliveryTarget = { start: () => Promise.reject(new Error('nothing is delivered here')) };

/** The pipeline with the hooks of this plugin alone. */
async function openPipeline(test: Ending, input: SiteInput = {}) {
  const { directory, settings } = await openSite(test, { users, ...input });
  const counted: string[] = [];
  const signIns = new SignIns(directory, new AttemptLimiter({ ...settings.attempts, clock: systemClock }));
  const sessions = new SignedInSessions(directory);
  const pipeline = new Pipeline({ log: silent, clock: systemClock });
  pipeline.deliverTo('store', 'mailbox', mailbox);
  pipeline.on(
    'users',
    'auth',
    {},
    signInHook(signIns, sessions, (via, result) => counted.push(`${via} ${result}`)),
  );
  pipeline.on('users', 'rcptTo', { order: 'route' }, recipientHook(directory));
  return { pipeline, counted };
}

interface Peer {
  readonly address?: string;
  readonly username?: string;
  readonly exempt?: boolean;
}

function sessionOf({ address = '192.0.2.1', username, exempt = false }: Peer = {}): SmtpSession {
  return {
    id: 's1',
    listener: { name: 'mx', mode: username === undefined ? 'mx' : 'submission' },
    remote: { address, port: 1234 },
    exempt,
    hello: { verb: 'EHLO', name: 'client.example' },
    tls: undefined,
    user: username === undefined ? undefined : { username },
    since: '2026-01-02T03:04:05.000Z',
    notes: new Map(),
  };
}

function transactionOf(session: SmtpSession, sender: string): Transaction {
  return {
    id: 't1',
    session,
    reversePath: parsePath(sender),
    declaredSize: undefined,
    body: '7BIT',
    smtputf8: false,
    recipients: [],
    notes: new Map(),
  };
}

/** What RCPT is answered: `mailbox anna@example.org`, or a reply. */
async function recipient(
  pipeline: Pipeline,
  path: string,
  peer: Peer = {},
  sender = '<x@example.com>',
): Promise<string> {
  const address = parsePath(path);
  assert.ok(address !== null);
  const transaction = transactionOf(sessionOf(peer), sender);
  return told(await pipeline.snapshot().decide('rcptTo', { transaction, address }));
}

async function signIn(pipeline: Pipeline, username: string, password: string, peer: Peer = {}): Promise<string> {
  const input = { session: sessionOf(peer), mechanism: 'PLAIN', username, password } as const;
  return told(await pipeline.snapshot().decide('auth', input));
}

function told(decision: Decision): string {
  if (decision.outcome === 'refuse') {
    const { code, status, lines } = decision.reply;
    return `${code} ${status ?? ''} ${lines.join(' ')}`;
  }
  if (decision.outcome === 'discard') return 'discard';
  return decision.hop === undefined
    ? `user ${decision.user?.username ?? ''}`
    : `${decision.hop.target} ${decision.hop.destination}`;
}

describe('a recipient', () => {
  it('that is ours goes to its mailbox, whichever of its addresses was given', async (test) => {
    const { pipeline } = await openPipeline(test);
    for (const path of [
      '<anna@example.org>',
      '<Info@EXAMPLE.org>',
      '<anna+x@example.org>',
      '<"anna"@example.org>',
      '<@a.example,@b.example:anna@example.org>',
    ]) {
      assert.equal(await recipient(pipeline, path), 'mailbox anna@example.org', path);
    }
    assert.equal(await recipient(pipeline, '<postmaster@example.net>'), 'mailbox postmaster@example.org');
  });

  it('that no user has is refused, and so is a disabled mailbox', async (test) => {
    const { pipeline } = await openPipeline(test);
    assert.equal(await recipient(pipeline, '<nobody@example.org>'), '550 5.1.1 No such user here');
    assert.equal(await recipient(pipeline, '<"../anna"@example.org>'), '550 5.1.1 No such user here');
    assert.equal(await recipient(pipeline, '<dora@example.org>'), '550 5.2.1 This mailbox is disabled');
  });

  it('is answered without a promise', async (test) => {
    const { pipeline } = await openPipeline(test);
    const transaction = transactionOf(sessionOf(), '<>');
    for (const path of ['<anna@example.org>', '<nobody@example.org>', '<x@example.com>']) {
      const address = parsePath(path);
      assert.ok(
        address !== null && !(pipeline.snapshot().decide('rcptTo', { transaction, address }) instanceof Promise),
      );
    }
  });

  it('elsewhere is refused to signed-in users with a reason', async (test) => {
    const { pipeline } = await openPipeline(test);
    const answer = await recipient(pipeline, '<x@example.com>', { username: 'anna@example.org' });
    assert.match(answer, /^550 5\.7\.1 Relaying is not available/);
  });

  it('elsewhere may be routed by an earlier plugin', async (test) => {
    const { pipeline } = await openPipeline(test);
    pipeline.on('elsewhere', 'rcptTo', { order: 'route', before: 'users' }, ({ transaction }) =>
      transaction.session.user === undefined ? next() : route({ target: 'mailbox', destination: 'away' }),
    );
    assert.equal(await recipient(pipeline, '<x@example.com>', { username: 'anna@example.org' }), 'mailbox away');
    assert.match(await recipient(pipeline, '<x@example.com>'), /^550 5\.7\.1/);
  });
});

describe('this server is no open relay', () => {
  const peers: Readonly<Record<string, Peer>> = {
    'a stranger': {},
    'a neighbour on loopback': { address: '127.0.0.1', exempt: true },
    'a user who has signed in': { username: 'anna@example.org' },
  };
  const senders = ['<>', '<x@example.com>', '<anna@example.org>', '<postmaster@example.org>'];
  const paths = [
    '<x@example.com>',
    '<X@EXAMPLE.COM>',
    '<x@sub.example.org>',
    '<x@example.org.example.com>',
    '<x@[192.0.2.9]>',
    '<x@[127.0.0.1]>',
    '<x@[IPv6:::1]>',
    '<anna@localhost>',
    '<x%example.com@example.org>',
    '<x%example.com@[127.0.0.1]>',
    '<anna%example.com@example.org>',
    '<example.com!x@example.org>',
    '<example.com!x>',
    '<"x@example.com"@example.org>',
    '<"x%example.com"@example.org>',
    '<"example.com!x"@example.org>',
    '<@example.org:x@example.com>',
    '<@example.org,@example.net:x@example.com>',
    '<@example.com:x%example.net@example.org>',
    '<"anna@example.org"@example.com>',
    '<anna+x@example.com>',
    '<postmaster@example.com>',
  ];
  for (const [who, peer] of Object.entries(peers)) {
    for (const catchAll of [null, 'anna@example.org']) {
      it(`for ${who}${catchAll === null ? '' : ', nor where a user catches all'}`, async (test) => {
        const { pipeline } = await openPipeline(test, { options: { catchAll } });
        for (const sender of senders) {
          for (const path of paths) {
            assert.match(await answerTo(pipeline, path, peer, sender), /^55[03] 5\.(7\.1|1\.3)/, `${sender} ${path}`);
          }
        }
      });
    }
  }
});

/** The same, where a path that cannot be read is answered as the session answers it. */
async function answerTo(pipeline: Pipeline, path: string, peer: Peer, sender: string): Promise<string> {
  try {
    return await recipient(pipeline, path, peer, sender);
  } catch (error) {
    if (!isProblem(error)) throw error;
    return '553 5.1.3';
  }
}

describe('AUTH', () => {
  it('names the user, in the letters that we keep, when the password is right', async (test) => {
    const { pipeline, counted } = await openPipeline(test);
    assert.equal(await signIn(pipeline, 'Anna@Example.org', 'right'), 'user anna@example.org');
    assert.deepEqual(counted, ['smtp accepted']);
  });

  it('answers the same for a wrong password, an unknown, a disabled and a passwordless user', async (test) => {
    const { pipeline, counted } = await openPipeline(test);
    const answers = new Set<string>();
    for (const username of ['anna@example.org', 'nobody@example.org', 'postmaster@example.org']) {
      answers.add(await signIn(pipeline, username, 'wrong'));
    }
    answers.add(await signIn(pipeline, 'dora@example.org', 'right'));
    assert.equal(answers.size, 1);
    assert.match([...answers].join(), /^535 5\.7\.8 /);
    assert.deepEqual(counted, Array(4).fill('smtp refused'));
  });

  it('is put off after too many failures of one user from one address, but not for those exempt', async (test) => {
    const { pipeline, counted } = await openPipeline(test, { options: { attempts: { limit: 2 } } });
    const peer = { address: '192.0.2.7' };
    await signIn(pipeline, 'anna@example.org', 'wrong', peer);
    await signIn(pipeline, 'anna@example.org', 'wrong', peer);
    assert.match(
      await signIn(pipeline, 'anna@example.org', 'right', peer),
      /^454 4\.7\.0 Too many failed sign-ins, try again in \d+ seconds$/,
    );
    assert.equal(counted.at(-1), 'smtp limited');
    assert.equal(
      await signIn(pipeline, 'anna@example.org', 'right', { ...peer, exempt: true }),
      'user anna@example.org',
    );
    assert.equal(
      await signIn(pipeline, 'anna@example.org', 'right', { address: '192.0.2.8' }),
      'user anna@example.org',
    );
  });

  it('is put off while too many passwords are being checked, and a local fault is never a yes', async () => {
    const counted: string[] = [];
    const pipeline = new Pipeline({ log: silent, clock: systemClock });
    const faults = [problem('unavailable'), new Error('the disk is gone')];
    const directory = {
      authenticate: () => Promise.reject(faults.shift() ?? new Error('asked too often')),
      canonical: (typed: string) => typed,
      credentialOf: () => undefined,
    };
    const limiter = new AttemptLimiter({ limit: 10, windowSeconds: 60, maxKeys: 10, clock: systemClock });
    pipeline.on(
      'users',
      'auth',
      {},
      signInHook(new SignIns(directory, limiter), new SignedInSessions(directory), (_, result) => counted.push(result)),
    );
    assert.equal(await signIn(pipeline, 'anna@example.org', 'x'), '454 4.7.0 Temporary authentication failure');
    assert.match(await signIn(pipeline, 'anna@example.org', 'x'), /^451 4\.3\.0/);
    assert.deepEqual(counted, ['unavailable']);
  });
});
