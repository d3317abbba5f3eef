import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { HopSearch } from '../../../core/dns/next-hop.js';
import { isProblem } from '../../../core/problem.js';
import {
  parseDestination,
  siteLabel,
  siteOfRoute,
  siteOfSearch,
} from '../../../plugins/client-queue/delivery/destination.js';
import { Sites } from '../../../plugins/client-queue/delivery/sites.js';
import { NextHops } from '../../../plugins/client-queue/delivery/next-hops.js';
import { ClientQueueOptions } from '../../../plugins/client-queue/options.js';
import { HandClock } from '../../support/hand-clock.js';
import { type Behaviour, type SinkMoment, type SinkScript, SmtpSink } from '../../support/smtp-sink.js';
import { outboundFixture, type OutboundFixtureOptions } from './outbound-fixture.js';

function found(site: string, ...best: readonly string[]): HopSearch {
  const hops = best.map((host) => ({ host, address: '127.0.0.1', preference: 10 }));
  return { outcome: 'found', site, hops };
}

const lost: HopSearch = {
  outcome: 'failed',
  reason: 'dns',
  code: 451,
  status: '4.4.3',
  text: 'No',
  permanent: false,
};

describe('the site of a destination', () => {
  const settings = ClientQueueOptions.parse({
    sites: { big: { mx: ['mx.big.example', '*.mail.big.example'] }, small: { mx: ['*.small.example'] } },
  });

  test('is the set of all its servers', () => {
    const search = found('mx1.example.net,mx2.example.net', 'mx1.example.net');
    assert.equal(siteOfSearch(search, 'example.net', settings), 'site:mx1.example.net,mx2.example.net');
  });

  test('of very many servers is called by some of them', () => {
    const names = Array.from({ length: 500 }, (_, n) => `mx${String(n).padStart(3, '0')}.example.net`);
    const key = siteOfSearch(found(names.join(','), ...names), 'example.net', settings);
    assert.equal(key, `site:${names.slice(0, 10).join(',')}`);
    assert.equal(parseDestination(key), key);
  });

  test('is a configured one when all of its best servers belong to that', () => {
    const both = found('mx.big.example,x.mail.big.example', 'mx.big.example', 'x.mail.big.example');
    assert.equal(siteOfSearch(both, 'a.example', settings), 'site:big');
    const mixed = found('mx.big.example,x.small.example', 'mx.big.example', 'x.small.example');
    assert.equal(siteOfSearch(mixed, 'a.example', settings), 'site:mx.big.example,x.small.example');
  });

  test('never takes the name of a configured one, whatever its servers are called', () => {
    assert.equal(siteOfSearch(found('big', 'big'), 'a.example', settings), 'site:big.');
  });

  test('of a route is that of its hosts, and of its port where that is another', () => {
    assert.equal(siteOfRoute({ mx: ['B.example', 'a.example'], port: 25 }, settings), 'site:a.example,b.example');
    assert.equal(siteOfRoute({ mx: ['a.example'], port: 24 }, settings), 'site:a.example:24');
    assert.equal(siteOfRoute({ mx: ['x.small.example'], port: 587 }, settings), 'site:small');
  });

  test('is shown where it says more than the destination', () => {
    assert.equal(siteLabel('site:a.example,b.example', 'c.example'), 'a.example, b.example');
    assert.equal(siteLabel('site:c.example', 'c.example'), null);
    assert.equal(siteLabel('target:mailbox', 'target:mailbox'), null);
  });

  test('is written in one spelling, and nonsense is refused', () => {
    assert.equal(parseDestination(' Site:MX1.example,mx2.example '), 'site:mx1.example,mx2.example');
    for (const written of ['site:', 'site:a,,b', 'site:a b', 'site:<script>', 'site:a\u0000'])
      assert.throws(
        () => parseDestination(written),
        (error) => isProblem(error) && error.problem === 'invalid',
      );
  });
});

describe('looking up sites', () => {
  function fixture(search: (domain: string) => Promise<HopSearch>) {
    const clock = new HandClock();
    const asked: string[] = [];
    const settings = ClientQueueOptions.parse({ routes: { out: { mx: ['relay.example'] } } });
    const forDomain = (domain: string): Promise<HopSearch> => {
      asked.push(domain);
      return search(domain);
    };
    const finder = { forDomain, forHosts: () => Promise.reject(new Error('nobody asks')) };
    const hops = new NextHops({ finder, clock, hostname: 'mail.example.org', settings: () => settings });
    const sites = new Sites({ hops, settings: () => settings, clock });
    const told = (): Promise<void> => new Promise((resolve) => void sites.onFound(resolve));
    return { clock, asked, hops, sites, told };
  }

  test('a domain is looked up once, and who listens hears of it', async () => {
    const { asked, sites, told } = fixture(() => Promise.resolve(found('mx.example')));
    const heard = told();
    assert.equal(sites.of('a.example'), undefined);
    assert.equal(sites.of('a.example'), undefined);
    await heard;
    assert.equal(sites.of('a.example'), 'site:mx.example');
    assert.deepEqual(asked, ['a.example']);
  });

  test('routes, literals and targets are known without asking anybody', () => {
    const { asked, sites } = fixture(() => Promise.reject(new Error('nobody asks')));
    assert.deepEqual(
      ['route:out', '[192.0.2.1]', 'target:mailbox', 'route:gone'].map((name) => sites.of(name)),
      ['site:relay.example', 'site:[192.0.2.1]', 'target:mailbox', 'route:gone'],
    );
    assert.deepEqual(asked, []);
  });

  test('an answer that grows old counts until the new one is there', async () => {
    let site = 'old';
    const { clock, sites, told } = fixture(() => Promise.resolve(found(`${site}.example`)));
    let heard = told();
    sites.of('a.example');
    await heard;
    site = 'new';
    clock.advance(25);
    heard = told();
    assert.equal(sites.of('a.example'), 'site:old.example');
    await heard;
    assert.equal(sites.of('a.example'), 'site:new.example');
  });

  test('no attempt has to wait for name servers that do not answer any more', async () => {
    let answer: Promise<HopSearch> = Promise.resolve(found('mx.example'));
    const { clock, hops, sites, told } = fixture(() => answer);
    const heard = told();
    sites.of('a.example');
    await heard;
    answer = new Promise(() => undefined);
    clock.advance(25);
    assert.equal(sites.of('a.example'), 'site:mx.example');
    assert.equal((await hops.find('a.example')).outcome, 'found', 'what an attempt asks');
    clock.advance(25);
    assert.equal(sites.of('a.example'), undefined, 'it gets no attempt');
    assert.equal(sites.peek('a.example'), 'site:mx.example', 'people are told what was known last');
  });

  test('a domain whose name servers hung is left alone for a while', async () => {
    const clocks: HandClock[] = [];
    const { clock, asked, sites, told } = fixture((domain) => {
      if (domain.startsWith('dead')) clocks[0]?.advance(15);
      return Promise.resolve(domain.startsWith('dead') ? lost : found('mx.example'));
    });
    clocks.push(clock);
    const heard = told();
    sites.of('dead.example');
    await heard;
    clock.advance(20);
    assert.equal(sites.of('dead.example'), 'site:dead.example', 'what is new for it is deferred at once');
    assert.equal(asked.length, 1);
    clock.advance(20);
    assert.equal(sites.of('dead.example'), undefined);
    assert.equal(asked.length, 2);
  });

  test('what cannot be looked up is tried all the same, and looked up again soon', async () => {
    const { clock, asked, sites, told } = fixture(() => Promise.resolve(lost));
    const heard = told();
    sites.of('a.example');
    await heard;
    assert.equal(sites.of('a.example'), 'site:a.example');
    clock.advance(10_000);
    assert.equal(sites.of('a.example'), undefined);
    assert.equal(asked.length, 2);
  });

  test('however many are asked for, only some are looked up at a time, and all in the end', async () => {
    let open = 0;
    let most = 0;
    const { sites } = fixture(async (domain) => {
      open += 1;
      most = Math.max(most, open);
      await new Promise(setImmediate);
      open -= 1;
      return found(`site:${domain}`);
    });
    const names = Array.from({ length: 2000 }, (_, n) => `d${n}.example`);
    const done = new Promise<void>((resolve) => {
      sites.onFound(() => {
        if (names.every((name) => sites.peek(name) !== undefined)) resolve();
      });
    });
    for (const name of names) sites.of(name);
    await done;
    assert.ok(most <= 200, `${most} at a time`);
  });
});

describe('domains with the same servers', () => {
  /** Mail for `a.example` and `b.example` goes to one server. */
  async function shared(t: TestContext, options: object = {}, script: SinkScript = {}) {
    const sink = await SmtpSink.start(t, script);
    const hops: OutboundFixtureOptions['hops'] = Object.fromEntries(
      ['a.example', 'b.example'].map((domain) => [
        domain,
        { outcome: 'found', site: 'mx.example', hops: [{ host: 'mx.example', address: '127.0.0.1', preference: 1 }] },
      ]),
    );
    const fixture = await outboundFixture(t, { hops, options: { port: sink.port, ...options } });
    return { ...fixture, sink };
  }

  async function enqueued(fixture: Awaited<ReturnType<typeof shared>>, count: number): Promise<readonly string[]> {
    const uids: string[] = [];
    for (let n = 0; n < count; n += 1) {
      for (const domain of ['a.example', 'b.example']) uids.push(await fixture.enqueue({ to: [`x@${domain}`] }));
    }
    return uids;
  }

  test('share the limit of connections', async (t) => {
    const fixture = await shared(t, { destination: { maxConnections: 1 } });
    const uids = await enqueued(fixture, 5);
    await fixture.outbound.start();
    for (const uid of uids) assert.equal((await fixture.tried(uid)).state, 'delivered');
    assert.equal(fixture.sink.connections, 1);
  });

  test('share the rate', async (t) => {
    const fixture = await shared(t, { destination: { ratePerMinute: 1 } });
    await enqueued(fixture, 3);
    await fixture.outbound.start();
    await fixture.sink.until(({ messages }) => messages.length === 1);
    await pause(600);
    assert.equal(fixture.sink.messages.length, 1);
  });

  test('share the few connections that a server of which nothing is known gets first', async (t) => {
    const fixture = await shared(t, {}, { steps: { greeting: { stall: true } } });
    await enqueued(fixture, 5);
    await fixture.outbound.start();
    await fixture.sink.until(({ connections }) => connections === 5);
    assert.equal(fixture.outbound.pace('site:mx.example').now?.busy, 5);
    assert.equal(fixture.outbound.pace('site:a.example').now, undefined);
    await fixture.sink.close();
  });

  test('wait together when their site is suspended, and one of them alone when it is', async (t) => {
    const fixture = await shared(t);
    await fixture.controls.set('site:mx.example', { suspendedUntil: Infinity }, 'ops');
    const [a = '', b = ''] = await enqueued(fixture, 1);
    const other = await fixture.enqueue({ to: ['x@c.example'] });
    await fixture.outbound.start();
    await fixture.tried(other);
    assert.deepEqual(
      [(await fixture.queue.find(a))?.state, (await fixture.queue.find(b))?.state],
      ['queued', 'queued'],
    );
    await fixture.controls.set('b.example', { suspendedUntil: Infinity }, 'ops');
    await fixture.controls.clear('site:mx.example');
    assert.equal((await fixture.tried(a)).state, 'delivered');
    assert.equal((await fixture.queue.find(b))?.state, 'queued');
  });

  test('may each have a limit within that of the site', async (t) => {
    const busy = { a: new Set<number>(), b: new Set<number>() };
    const most = { a: 0, b: 0 };
    const rcpt = ({ line, connection }: SinkMoment): undefined => {
      const name = line.includes('@b.') ? 'b' : 'a';
      busy[name].add(connection);
      most[name] = Math.max(most[name], busy[name].size);
    };
    const dot = ({ connection }: SinkMoment): Behaviour => {
      busy.a.delete(connection);
      busy.b.delete(connection);
      return { after: pause(10), say: '250 2.0.0 Ok' };
    };
    const fixture = await shared(t, {}, { steps: { rcpt, dot } });
    await fixture.controls.set('b.example', { maxConnections: 1 }, 'ops');
    const uids = await enqueued(fixture, 5);
    await fixture.outbound.start();
    for (const uid of uids) assert.equal((await fixture.tried(uid)).state, 'delivered');
    assert.equal(most.b, 1);
    assert.ok(most.a > 1, `${most.a} for the other`);
  });

  test('follow the limits that are configured for their site', async (t) => {
    const sites = { provider: { mx: ['mx.example'], maxConnections: 1 } };
    const fixture = await shared(t, { sites });
    const uids = await enqueued(fixture, 5);
    await fixture.outbound.start();
    for (const uid of uids) assert.equal((await fixture.tried(uid)).state, 'delivered');
    assert.equal(fixture.sink.connections, 1);
    assert.equal(fixture.outbound.sites.peek('a.example'), 'site:provider');
  });
});
