import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  change,
  definePlugin,
  hold,
  defer,
  next,
  parseAddress,
  reject,
  route,
  type Change,
  type FinishedAttempt,
} from '../../core/plugin.js';
import { drive } from '../kit/index.js';

/** Makes these changes to messages whose subject is `change`. */
const changing = (changes: () => readonly Change[], limitMs = 10_000) =>
  definePlugin({
    name: 'changing',
    setup({ smtp }) {
      smtp.on('message', { timeLimitMs: limitMs }, ({ message }) =>
        message.headers.some(([name, value]) => name === 'Subject' && value === 'change')
          ? change(...changes())
          : next(),
      );
    },
  });
const eml = (subject: string) => `Subject: ${subject}\r\n\r\nHello\r\n`;
const never = new Promise<never>(() => undefined);

describe('a hook that changes a message', () => {
  test('gives it another sender, header and body, which later hooks see and targets get', async (t) => {
    const seen: unknown[] = [];
    const looking = definePlugin({
      name: 'looking',
      setup({ smtp }) {
        smtp.on('deliver', ({ transaction, message }) => {
          seen.push(
            transaction.reversePath?.address,
            message.headers.map(([name]) => name),
            message.size,
          );
          return next();
        });
      },
    });
    const plugin = changing(() => [
      { change: 'sender', address: parseAddress('srs0=x@example.org') },
      { change: 'add-header', name: 'X-Was', value: 'here' },
      {
        change: 'body',
        async *write(body) {
          yield* body;
          yield 'Footer\n';
        },
      },
    ]);
    const site = await drive(plugin, { test: t, beside: [looking] });
    assert.equal((await site.data({ eml: eml('change') })).code, 250);
    const [mail] = site.delivered;
    assert.deepEqual([mail?.from, mail?.eml], ['srs0=x@example.org', `X-Was: here\r\n${eml('change')}Footer\r\n`]);
    assert.deepEqual(seen, ['srs0=x@example.org', ['X-Was', 'Subject'], mail?.eml.length]);
  });

  const faults: Readonly<Record<string, (body: AsyncIterable<Buffer>) => AsyncIterable<Buffer>>> = {
    throws() {
      throw new Error('oops');
    },
    async *hangs() {
      yield await never;
    },
    async *'writes without bound'(body) {
      yield* body;
      for (;;) yield Buffer.alloc(1024 * 1024, 'x\r\n');
    },
  };
  for (const [how, write] of Object.entries(faults)) {
    test(`and ${how} is a 451: nobody gets the message, and the next one arrives`, async (t) => {
      const site = await drive(
        changing(() => [{ change: 'body', write }]),
        { test: t },
      );
      const answer = await site.data({ eml: eml('change') });
      assert.deepEqual([answer.code, answer.status, answer.plugin], [451, '4.3.0', 'changing']);
      assert.deepEqual(site.delivered, []);
      assert.equal(site.log.filter(({ msg }) => msg === 'a hook failed').length, 1);
      assert.equal((await site.data({ eml: eml('plain') })).code, 250);
      assert.equal(site.health().spool?.status, 'up');
    });
  }
});

describe('a hook before an attempt of the queue', () => {
  test('defers, holds and returns mail, and faults of it defer', async (t) => {
    const said = {
      deferred: () => defer(450, '4.7.1', 'Not at night'),
      bounced: () => reject(550, '5.7.1', 'Never'),
      held: () => hold('an operator looks'),
      delivered: () => next(),
      broken: () => {
        throw new Error('oops');
      },
    };
    const outcomes = new Map<string, string>();
    const plugin = definePlugin({
      name: 'careful',
      setup({ smtp }) {
        smtp.on('rcptTo', { order: 'route' }, ({ address }) =>
          route({ target: 'mailbox', destination: address.address }, { queued: true }),
        );
        smtp.on('attempt', ({ attempt: { recipients, target, attempts } }) => {
          assert.deepEqual([target, attempts], ['mailbox', 0]);
          return said[recipients[0]?.local as keyof typeof said]();
        });
        smtp.watch(
          'outcome',
          ({ recipient, status, reply }) => void outcomes.set(recipient.local, `${status} ${reply?.code ?? '-'}`),
        );
      },
    });
    const site = await drive(plugin, { test: t });
    for (const local of Object.keys(said)) await site.data({ to: `${local}@example.org` });
    await site.clock.advance({ seconds: 1 });
    await site.until(() => outcomes.size === 5);
    assert.deepEqual(Object.fromEntries(outcomes), {
      deferred: 'deferred 450',
      bounced: 'bounced 550',
      held: 'held -',
      delivered: 'delivered 250',
      broken: 'deferred 451',
    });
    assert.equal(site.mailbox('delivered@example.org').length, 1);
  });
});

describe('a watcher of attempts', () => {
  const queueing = (watch: (finished: FinishedAttempt) => void | Promise<void>) =>
    definePlugin({
      name: 'queueing',
      setup({ smtp }) {
        smtp.on('rcptTo', { order: 'route' }, ({ address }) =>
          route({ target: 'mailbox', destination: address.address }, { queued: true }),
        );
        smtp.on('attempt', ({ attempt: { attempts } }) => (attempts === 0 ? defer(450, '4.7.1', 'Later') : next()));
        smtp.watch('attempted', watch);
      },
    });

  test('sees destination, replies and when it is tried again, once for each attempt', async (t) => {
    const seen: unknown[] = [];
    const plugin = queueing(({ attempt: { destination, target, attempts, recipients }, results }) => {
      for (const { status, reply, nextAttemptAt } of results)
        seen.push([recipients.length, destination, target, attempts, status, reply?.code, nextAttemptAt === null]);
    });
    const site = await drive(plugin, { test: t });
    await site.data();
    await site.clock.advance({ minutes: 10 });
    await site.until(() => seen.length === 2);
    assert.deepEqual(seen, [
      [1, 'target:mailbox', 'mailbox', 0, 'deferred', 450, false],
      [1, 'target:mailbox', 'mailbox', 1, 'delivered', 250, true],
    ]);
  });

  const faults: Readonly<Record<string, (finished: FinishedAttempt) => void | Promise<void>>> = {
    throws() {
      throw new Error('oops');
    },
    rejects: () => Promise.reject(new Error('oops')),
    hangs: () => never,
  };
  for (const [how, watch] of Object.entries(faults)) {
    test(`that ${how} holds up nothing: it is logged with the mail, and the plugin is degraded`, async (t) => {
      const site = await drive(queueing(watch), { test: t, timeLimitMs: 30 });
      for (let n = 0; n < 3; n += 1) await site.data();
      await site.clock.advance({ minutes: 6 });
      const failed = () => site.log.filter(({ msg, event }) => msg === 'a watcher failed' && event === 'attempted');
      await site.until(() => failed().length === 6);
      assert.equal(site.mailbox('bob@example.org').length, 3);
      assert.match(String(failed()[0]?.['uid']), /-queue$/);
      const { status, why } = site.health('plugin queueing');
      assert.equal(status, 'degraded');
      assert.match(why ?? '', /watcher attempted: (?:oops|took longer than 30 ms)/);
    });
  }
});
