import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { HopFinder, HopSearch } from '../../../core/dns/next-hop.js';
import { MailRoutes } from '../../../core/dns/mail-routes.js';
import { NextHops } from '../../../plugins/client-queue/delivery/next-hops.js';
import { Sites } from '../../../plugins/client-queue/delivery/sites.js';
import { PolicedFinder } from '../../../plugins/client-queue/mta-sts/sts-policies.js';
import { ClientQueueOptions } from '../../../plugins/client-queue/options.js';
import { FixedResolver } from '../../core/dns/fixed-resolver.js';
import { HandClock } from '../../support/hand-clock.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { outboundFixture, outcomes } from './outbound-fixture.js';

const broken = (): never => {
  throw new TypeError('a fault of this server');
};
const hops: HopSearch = {
  outcome: 'found',
  site: 'mx.example.net',
  hops: [{ host: 'mx.example.net', address: '127.0.0.1', preference: 0 }],
};

/** A resolver that fails in ways that a resolver must not. */
class BrokenResolver extends FixedResolver {
  override resolve4: FixedResolver['resolve4'] = broken;
}

function brokenRoutes(): MailRoutes {
  const resolver = new BrokenResolver({ 'example.net': { mx: [[10, 'mx.example.net']] }, 'mx.example.net': {} });
  return new MailRoutes({ resolver, ownNames: [], ownAddresses: () => [] });
}

const policed = (of: PolicySource): HopFinder =>
  new PolicedFinder(
    {
      forDomain: async (_, options) => {
        await options?.allowed?.();
        return hops;
      },
      forHosts: () => Promise.resolve(hops),
      forget: () => undefined,
    },
    { of, forgetFailures: () => undefined },
  );
type PolicySource = () => Promise<never>;

describe('a search for servers that fails here', () => {
  const finders: readonly (readonly [title: string, first: HopFinder])[] = [
    ['throws', { forDomain: broken, forHosts: broken }],
    ['rejects', { forDomain: () => Promise.reject(new TypeError('x')), forHosts: broken }],
    ['meets a resolver that throws', brokenRoutes()],
    ['meets a policy that rejects', policed(() => Promise.reject(new TypeError('x')))],
  ];
  for (const [title, first] of finders) {
    test(`since it ${title}, defers the mail, which goes when it works again`, { timeout: 20_000 }, async (t) => {
      const sink = await SmtpSink.start(t);
      let isBroken = true;
      const finder: HopFinder = {
        forDomain: (domain, options) => (isBroken ? first.forDomain(domain, options) : Promise.resolve(hops)),
        forHosts: () => Promise.resolve(hops),
      };
      const { delivered, queue, outbound, entryWhen, sentences } = await outboundFixture(t, {
        finder,
        options: { port: sink.port },
      });
      const entry = await delivered({ to: ['bob@example.net'] });
      assert.deepEqual(outcomes(entry), ['bob@example.net deferred 451 4.3.0']);
      assert.equal(entry.recipients[0]?.lastReply?.text, 'The search for a server failed here, it is tried again');
      assert.ok(sentences.includes('the servers of a destination could not be searched'));
      isBroken = false;
      outbound.forgetFailures(['example.net']);
      await queue.mutate({ uids: [entry.uid] }, { operation: 'retry' }, Date.now());
      assert.equal((await entryWhen(entry.uid, ({ state }) => state === 'delivered')).state, 'delivered');
      assert.equal(sink.messages.length, 1);
    });
  }
});

for (const [title, finder] of [
  ['servers', { forDomain: () => new Promise<never>(() => undefined), forHosts: broken }],
  ['a policy', policed(() => new Promise<never>(() => undefined))],
] as const) {
  test(`a search that waits for ${title} without end has failed after a while`, async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const clock = new HandClock();
    const settings = () => ClientQueueOptions.parse({});
    const nextHops = new NextHops({ finder, clock, hostname: 'mail.example.org', settings });
    const sites = new Sites({ hops: nextHops, clock, settings });
    const told = new Promise<void>((resolve) => sites.onFound(resolve));
    assert.equal(sites.of('example.net'), undefined);
    const found = nextHops.find('example.net');
    t.mock.timers.tick(90_000);
    assert.deepEqual(await found, {
      outcome: 'failed',
      reason: 'dns',
      code: 451,
      status: '4.3.0',
      text: 'The search for a server failed here, it is tried again',
      permanent: false,
    });
    await told;
    assert.equal(sites.of('example.net'), 'site:example.net', 'an attempt may begin, which defers the mail');
  });
}
