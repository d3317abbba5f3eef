import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, test } from 'node:test';
import {
  definePlugin,
  directory,
  problem,
  reject,
  next,
  parseAddress,
  queue,
  route,
  service,
  z,
  type Hop,
  type MailQueue,
  type MessageToQueue,
} from '../../core/plugin.js';
import { drive, type DrivenSite } from '../kit/index.js';
import { startError } from '../../core/problem.js';

interface Tally {
  add(name: string): number;
}
const tally = service<Tally>('example.tally');

const counting = definePlugin({
  name: 'counting',
  options: z.strictObject({ step: z.int().min(1).default(1) }),
  provides: { tally },
  commands: [
    {
      name: 'tally',
      summary: 'Counts',
      usage: ['postern tally NAME'],
      flags: ['json'],
      ownFlags: { by: { value: 'N', summary: 'how many to add' }, 'dry-count': { summary: 'adds nothing' } },
      async run({ args: [name], options, values, flags, owner, terminal, configuration }) {
        if (name === undefined) throw startError('postern tally NAME');
        if (name === 'nobody') throw problem('not-found', 'Nobody is not counted.');
        if (name === 'bug') throw new TypeError('a bug');
        if (name === 'flags') return terminal.print(JSON.stringify({ ...values, json: flags?.has('json') === true }));
        const sure = await terminal.ask('Sure? ');
        const answer = await owner?.('GET', '/openapi.json');
        terminal.print(`${name} ${options.step} ${sure} ${answer?.status} ${configuration.domains.join()}`);
      },
    },
  ],
  setup({ metrics, health, folder, log }, { options }) {
    const counted = metrics.counter('counting_names_total', 'Names', ['name']);
    const sizes = metrics.histogram('counting_size_bytes', 'Sizes', [1, 10, 100]);
    let step = options.step;
    let sum = 0;
    health.check('counting', () => (sum > 5 ? { status: 'degraded', why: 'That is too much.' } : { status: 'up' }));
    return {
      tally: {
        add: (name) => {
          counted.inc({ name }, step);
          sizes.observe(name.length);
          log.info({ name }, 'counted');
          sum += step;
          return sum;
        },
      },
      reconfigure: async (changed) => {
        if (changed.step > 100) throw problem('invalid', 'That is a leap.');
        step = changed.step;
        await writeFile(join(await folder('counting'), 'step'), `${step}`);
      },
    };
  },
});

const tallyOf = (site: DrivenSite): Tally => site.services['tally'] as Tally;

describe('a driven site', () => {
  test('shows what the plugin provides, counts, says and reports', async (t) => {
    const site = await drive(counting, { test: t });
    tallyOf(site).add('a');
    tallyOf(site).add('bb');
    tallyOf(site).add('a');
    assert.equal(await site.metric('counting_names_total'), 3);
    assert.equal(await site.metric('postern_counting_names_total', { name: 'a' }), 2);
    assert.equal(await site.metric('counting_names_total', { name: 'c' }), 0);
    assert.equal(await site.metric('counting_size_bytes_count'), 3);
    assert.equal(await site.metric('counting_size_bytes_sum'), 4);
    assert.deepEqual(site.health('counting'), { status: 'up', why: null });
    const unwell = Object.entries(site.health()).filter(([, { status }]) => status !== 'up');
    assert.deepEqual(unwell, [], 'listeners that are never opened are no part of it');
    assert.deepEqual(
      site.log.map(({ level, msg, name, time }) => [level, msg, name, time]),
      ['a', 'bb', 'a'].map((name) => ['info', 'counted', name, '2030-01-01T12:00:00.000Z']),
    );
    assert.ok(site.serverLog.length >= site.log.length);
    for (let n = 0; n < 3; n += 1) tallyOf(site).add('c');
    assert.deepEqual(site.health()['counting']?.why, 'That is too much.');
  });

  test('gives the plugin other options as a reload does, or not at all', async (t) => {
    const site = await drive(counting, { test: t, options: { step: 2 } });
    assert.equal(tallyOf(site).add('a'), 2);
    await site.reconfigure({ step: 3 });
    assert.equal(tallyOf(site).add('a'), 5);
    await assert.rejects(site.reconfigure({ step: 101 }), /counting refuses its options: That is a leap/);
    await assert.rejects(site.reconfigure({ step: 0 }), /plugins\.counting\.step: /);
    assert.equal(tallyOf(site).add('a'), 8);
  });

  test('sets a plugin up anew that takes no options while it runs, and shows the services of the new one', async (t) => {
    const sized = definePlugin({
      name: 'sized',
      options: z.strictObject({ size: z.int().default(1) }),
      provides: { tally },
      setup: (_context, { options }) => ({ tally: { add: () => options.size } }),
    });
    const heard: number[] = [];
    const other = definePlugin({
      name: 'other',
      options: z.strictObject({ size: z.int() }),
      setup: (_context, { options }) => void heard.push(options.size),
    });
    const site = await drive(sized, { test: t, beside: [[other, { size: 7 }]] });
    assert.equal(tallyOf(site).add('a'), 1);
    await site.reconfigure({ size: 2 });
    assert.equal(tallyOf(site).add('a'), 2);
    assert.deepEqual(heard, [7], 'the others keep their options');
  });

  test('says so when other options wait for a restart', async (t) => {
    const filing = definePlugin({
      name: 'filing',
      options: z.strictObject({ size: z.int().default(1) }),
      setup: async ({ folder }) => void (await folder('filing')),
    });
    const site = await drive(filing, { test: t });
    await assert.rejects(site.reconfigure({ size: 2 }), /filing takes them by a restart\. It keeps files of its own/);
  });

  test('gives a command its flags', async (t) => {
    const site = await drive(counting, { test: t });
    const flags = async (...words: string[]) => (await site.command(['tally', 'flags', ...words])).output.trim();
    assert.equal(await flags(), '{"json":false}');
    assert.equal(await flags('--by', '3', '--dry-count', '--json'), '{"by":"3","dry-count":true,"json":true}');
    assert.equal(await flags('--by=--json'), '{"by":"--json","json":false}');
    for (const [words, error] of [
      [['--by'], /--by/],
      [['--dry-count=yes'], /--dry-count/],
      [['--bye', '3'], /Unknown option '--bye'/],
      [['--dry-run'], /postern tally takes no --dry-run/],
    ] as const) {
      const refused = await site.command(['tally', 'flags', ...words]);
      assert.equal(refused.status, 2);
      assert.match(refused.error, error);
    }
  });

  test('runs a command as the terminal does', async (t) => {
    const site = await drive(counting, { test: t, options: { step: 4 } });
    assert.deepEqual(await site.command(['tally', 'anna'], { answers: ['yes'] }), {
      status: 0,
      output: 'Sure? anna 4 yes 200 example.org\n',
      error: '',
    });
    const help = await site.command(['tally', 'anna', '--by', '3', '--help']);
    assert.match(help.output, /^Counts\n\nUsage:\n {2}postern tally NAME\n/);
    assert.equal(help.status, 0);
    assert.deepEqual(await site.command(['tally']), { status: 1, output: '', error: 'postern tally NAME' });
    assert.equal((await site.command(['tally', 'nobody'])).error, 'Nobody is not counted.');
    await assert.rejects(site.command(['tally', 'bug']), { message: 'a bug' });
    await assert.rejects(site.command(['other']), { message: 'The plugin counting has no command other.' });
  });
});

test('what a plugin does by itself is waited for', async (t) => {
  let seen = 0;
  const slow = definePlugin({
    name: 'slow',
    setup: ({ smtp }) =>
      smtp.watch('closed', () => {
        setTimeout(() => (seen += 1), 20);
      }),
  });
  const site = await drive(slow, { test: t });
  await site.emit('closed', { messages: 1 });
  assert.equal(seen, 0);
  await site.until(() => seen > 0);
  assert.equal(seen, 1);
});

test('a test that forgets to close leaves no folder', () => {
  const kit = new URL('../kit/index.js', import.meta.url).href;
  const plugin = new URL('../../core/plugin.js', import.meta.url).href;
  const script = `
    const { drive } = await import('${kit}');
    const { definePlugin } = await import('${plugin}');
    const site = await drive(definePlugin({ name: 'forgotten', setup() {} }));
    await site.rcpt();
    process.stdout.write(site.folder);`;
  const { status, stdout } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
    encoding: 'utf8',
    timeout: 30_000,
  });
  assert.equal(status, 0);
  assert.match(stdout, /postern-testing-/);
  assert.equal(existsSync(stdout), false);
});

describe('beside the plugin', () => {
  const user = definePlugin({
    name: 'tallying',
    needs: { tally, directory },
    setup({ smtp }, { tally, directory }) {
      smtp.on('rcptTo', async ({ address }) => {
        const known = await directory.resolve(address);
        return tally.add(known?.username ?? 'nobody') > 3 ? reject(550, '5.7.1', 'Enough') : next();
      });
    },
  });

  test('others run, with options if they are given', async (t) => {
    const site = await drive(user, { test: t, beside: [[counting, { step: 2 }]] });
    assert.equal((await site.rcpt()).verdict, 'accept');
    assert.equal((await site.rcpt()).plugin, 'tallying');
    await assert.rejects(drive(user, { beside: [[counting, { step: 0 }]] }), /plugins\.counting\.step: /);
    assert.equal((await (await drive(user, { test: t, beside: [counting] })).rcpt()).verdict, 'accept');
  });

  test('a test may stand for a service itself', async (t) => {
    const names: string[] = [];
    const services = { tally: { add: (name: string) => names.push(name) }, directory: { resolve: () => undefined } };
    const site = await drive(user, { test: t, services });
    assert.equal((await site.rcpt({ to: 'bob@example.org' })).verdict, 'accept');
    assert.deepEqual(names, ['nobody']);
  });

  test('a plugin may be in front of users, or in its place', async (t) => {
    const first = definePlugin({
      name: 'first',
      setup: ({ smtp }) =>
        smtp.on('rcptTo', { order: 'route', before: 'users' }, ({ address }) =>
          address.local === 'mine' ? route({ target: 'mailbox', destination: 'shared@example.org' }) : next(),
        ),
    });
    const site = await drive(first, { test: t, users: ['anna@example.org'] });
    assert.equal((await site.data({ to: ['mine@example.org', 'Anna+list@example.org', 'eve@example.org'] })).code, 250);
    assert.deepEqual(
      site.delivered.map(({ mailbox, to }) => [mailbox, to]),
      [
        ['shared@example.org', ['mine@example.org']],
        ['anna@example.org', ['Anna+list@example.org']],
      ],
    );
    const users = definePlugin({
      name: 'users',
      setup: ({ smtp }) => smtp.on('rcptTo', { order: 'route' }, () => reject(550, '5.1.1', 'I know nobody')),
    });
    const own = await drive(users, { test: t });
    assert.deepEqual((await own.rcpt()).plugin, 'users');
  });

  test('mail of users for other servers, and what is held, arrives where a test can look', async (t) => {
    const plain = definePlugin({ name: 'plain', setup() {} });
    const site = await drive(plain, { test: t, domains: ['example.org', 'example.net'] });
    await site.data({ from: 'anna@example.org', user: 'anna@example.org', to: 'eve@elsewhere.example' });
    await site.data({ from: '', to: ['a@example.org', 'b@example.net'] });
    assert.deepEqual(
      site.delivered.map(({ target, mailbox, from }) => [target, mailbox, from]),
      [
        ['relay', 'eve@elsewhere.example', 'anna@example.org'],
        ['mailbox', 'a@example.org', ''],
        ['mailbox', 'b@example.net', ''],
      ],
    );
    assert.deepEqual(site.mailbox('B@example.net').length, 1);
  });

  test('a message of which a target takes some recipients only is 250, as live: the others are tried again or bounced', async (t) => {
    const outcomes = { good: 'delivered', late: 'deferred', bad: 'refused' } as const;
    const replies = {
      deferred: { code: 452, status: '4.2.2', text: 'Not now' },
      refused: { code: 550, status: '5.1.1', text: 'Not here' },
    };
    const picky = definePlugin({
      name: 'picky',
      setup({ smtp }) {
        smtp.on('rcptTo', { order: 'route' }, ({ address }) => route({ target: 'picky', destination: address.local }));
        smtp.deliverTo('picky', {
          start: (_transaction, recipients) =>
            Promise.resolve({
              body: () => Promise.resolve(),
              commit: () =>
                Promise.resolve(
                  recipients.map((recipient) => {
                    const outcome = outcomes[recipient.address.local as keyof typeof outcomes];
                    return outcome === 'delivered'
                      ? { recipient, outcome }
                      : { recipient, outcome, ...replies[outcome] };
                  }),
                ),
              abort: () => Promise.resolve(),
            }),
        });
      },
    });
    const statuses: string[] = [];
    const watching = definePlugin({
      name: 'watching',
      setup: ({ smtp }) => smtp.watch('outcome', ({ status, attempts }) => void statuses.push(`${status} ${attempts}`)),
    });
    const site = await drive(picky, { test: t, beside: [watching] });
    const to = ['good', 'late', 'bad'].map((local) => `${local}@example.org`);
    const answer = await site.data({ from: 'anna@example.org', user: 'anna@example.org', to });
    assert.equal(answer.code, 250);
    assert.deepEqual(
      new Map(site.delivered.map(({ target, mailbox }) => [target, mailbox])),
      new Map([
        ['bounce', 'bad@example.org'],
        ['retry', 'late@example.org'],
      ]),
    );
    await site.clock.advance({ minutes: 4 });
    assert.equal(statuses.length, 0);
    await site.clock.advance({ minutes: 1 });
    assert.equal(statuses.join(), 'deferred 1');
    await site.clock.advance({ days: 6 });
    assert.match(statuses.at(-1) ?? '', /^expired/);
  });

  test('a queued route is a 250 at once, and its target gets the mail from the queue until it takes it', async (t) => {
    let busy = true;
    const taken: string[] = [];
    const site = await drive(
      slowTarget(taken, () => busy),
      { test: t },
    );
    assert.equal((await site.data({ to: 'api@example.org' })).code, 250);
    assert.deepEqual(taken, []);
    await site.clock.advance({ seconds: 1 });
    busy = false;
    assert.deepEqual(taken, ['busy']);
    await site.clock.advance({ minutes: 5 });
    assert.deepEqual(taken, ['busy', 'api@example.org']);
  });

  test('a plugin lists, shows, holds, releases, retries and bounces what is in the queue', async (t) => {
    const taken: string[] = [];
    let given: MailQueue | undefined;
    const clerk = definePlugin({ name: 'clerk', needs: { queue }, setup: (_, { queue }) => void (given = queue) });
    const site = await drive(
      slowTarget(taken, () => true),
      { test: t, beside: [clerk] },
    );
    assert.ok(given);
    const hop = { target: 'slow', destination: 'x' };
    const [one, two] = [await given.enqueue(mailFor('a', hop)), await given.enqueue(mailFor('b', hop))];
    await given.hold(one, 'an operator looks');
    await site.clock.advance({ seconds: 1 });
    const states = async () => (await given?.list())?.map(({ state, recipients }) => [state, recipients[0]?.attempts]);
    assert.deepEqual(await states(), [
      ['held', 0],
      ['deferred', 1],
    ]);
    await given.release(one);
    await given.retry(two);
    await site.clock.advance({ seconds: 1 });
    assert.deepEqual(await states(), [
      ['deferred', 1],
      ['deferred', 2],
    ]);
    await given.bounce(two, 'not wanted');
    assert.equal((await given.list()).length, 1);
    assert.equal((await given.show(two))?.state, 'bounced');
    await assert.rejects(given.retry('none'), { problem: 'not-found' });
  });
});

const mailFor = (local: string, hop: Hop): MessageToQueue => ({
  reversePath: parseAddress('anna@example.com'),
  recipients: [parseAddress(`${local}@example.org`)],
  hop,
  content: () => Readable.from([Buffer.from('Subject: Hello\r\n\r\nHello\r\n')]),
});

/** Mail for `api@…` goes through the queue to a target that notes what it takes. */
const slowTarget = (taken: string[], isBusy: () => boolean) =>
  definePlugin({
    name: 'slow',
    setup({ smtp }) {
      smtp.on('rcptTo', { order: 'route' }, ({ address }) =>
        address.local === 'api' ? route({ target: 'slow', destination: address.address }, { queued: true }) : next(),
      );
      smtp.deliverTo('slow', {
        start: (_transaction, recipients) =>
          Promise.resolve({
            body: () => Promise.resolve(),
            commit: () => {
              taken.push(isBusy() ? 'busy' : (recipients[0]?.address.address ?? ''));
              return Promise.resolve(
                recipients.map((recipient) =>
                  isBusy()
                    ? { recipient, outcome: 'deferred' as const, code: 451, status: '4.3.0', text: 'Busy' }
                    : { recipient, outcome: 'delivered' as const },
                ),
              );
            },
            abort: () => Promise.resolve(),
          }),
      });
    },
  });
