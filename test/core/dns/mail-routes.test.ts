import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MailRoutes, type MailRoutesOptions } from '../../../core/dns/mail-routes.js';
import type { HopSearch, SearchOptions } from '../../../core/dns/next-hop.js';
import { SystemResolver } from '../../../core/dns/system-resolver.js';
import { DnsServer } from '../../support/dns-server.js';
import { FixedResolver, type FixedName } from './fixed-resolver.js';

function routesFor(names: Record<string, FixedName>, more: Partial<MailRoutesOptions> = {}): MailRoutes {
  const usual = {
    ownNames: ['here.example'],
    ownAddresses: () => ['198.51.100.99'],
    random: (below: number) => below - 1,
  };
  return new MailRoutes({ resolver: new FixedResolver(names), ...usual, ...more });
}

/** `address/host` of each hop; or `reason code status permanent|temporary`. */
function told(search: HopSearch): string | readonly string[] {
  if (search.outcome === 'found') return search.hops.map(({ host, address }) => `${address}/${host}`);
  const { reason, code, status, permanent } = search;
  return `${reason} ${code} ${status} ${permanent ? 'permanent' : 'temporary'}`;
}

const find = (names: Record<string, FixedName>, domain: string, options?: SearchOptions) =>
  routesFor(names).forDomain(domain, options).then(told);

const two = { mx1: { a: ['192.0.2.1'] }, mx2: { a: ['192.0.2.2'] }, mx3: { a: ['192.0.2.3'] } } as const;

test('mail servers come by preference, with their addresses', async () => {
  const names = {
    d: {
      mx: [
        [20, 'mx2'],
        [10, 'MX1'],
      ],
    },
    ...two,
    mx1: { a: ['192.0.2.1'], aaaa: ['2001:db8::1'] },
  } as const;
  assert.deepEqual(await find(names, 'd'), ['192.0.2.1/mx1', '2001:db8::1/mx1', '192.0.2.2/mx2']);
});

test('servers of equal preference take turns by chance, and stay in front of worse ones', async () => {
  const names = {
    d: {
      mx: [
        [10, 'mx1'],
        [10, 'mx2'],
        [20, 'mx3'],
      ],
    },
    ...two,
  } as const;
  const orders = new Set<string>();
  for (const chance of [(below: number) => below - 1, () => 0]) {
    const found = told(await routesFor(names, { random: chance }).forDomain('d'));
    assert.equal(found[2], '192.0.2.3/mx3');
    orders.add(String(found));
  }
  assert.equal(orders.size, 2);
});

test('a domain without MX records is its own server', async () => {
  assert.deepEqual(await find({ d: { a: ['192.0.2.9'] } }, 'd'), ['192.0.2.9/d']);
  assert.deepEqual(await find({ d: {} }, 'd'), 'no-address 550 5.1.2 permanent');
});

test('a null MX refuses all mail', async () => {
  assert.equal(await find({ d: { mx: [[0, '']], a: ['192.0.2.9'] } }, 'd'), 'null-mx 556 5.1.10 permanent');
  // RFC 7505 §3: beside others it means nothing.
  assert.deepEqual(
    await find(
      {
        d: {
          mx: [
            [0, ''],
            [10, 'mx1'],
          ],
        },
        ...two,
      },
      'd',
    ),
    ['192.0.2.1/mx1'],
  );
});

test('a domain that does not exist is asked for twice before it is believed', async () => {
  const resolver = new FixedResolver({});
  assert.equal(told(await routesFor({}, { resolver }).forDomain('d')), 'no-domain 550 5.1.2 permanent');
  assert.deepEqual(resolver.questions, ['MX d', 'MX d fresh']);
  const wavering = new FixedResolver({ ...two });
  const answer = wavering.resolveMx.bind(wavering);
  wavering.resolveMx = (name, options) => {
    if (options?.fresh === true) Object.assign(wavering.names, { d: { mx: [[10, 'mx1']] } });
    return answer(name, options);
  };
  assert.deepEqual(told(await routesFor({}, { resolver: wavering }).forDomain('d')), ['192.0.2.1/mx1']);
});

test('name servers that fail defer the mail', async () => {
  assert.equal(await find({ d: { mx: 'servfail' } }, 'd'), 'dns 451 4.4.3 temporary');
  assert.equal(await find({ d: { mx: 'timeout' } }, 'd'), 'dns 451 4.4.3 temporary');
  assert.equal(await find({ d: { mx: [[1, 'mx1']] }, mx1: { a: 'servfail' } }, 'd'), 'dns 451 4.4.3 temporary');
  assert.equal(await find({ d: { mx: [[1, 'mx1']] } }, 'd'), 'no-address 451 4.4.4 temporary');
  const found = await find(
    {
      d: {
        mx: [
          [1, 'mx1'],
          [2, 'mx2'],
        ],
      },
      ...two,
      mx1: { a: 'timeout' },
    },
    'd',
  );
  assert.deepEqual(found, ['192.0.2.2/mx2']);
});

test('a resolver that breaks its contract defers the mail too', async () => {
  const resolver = new FixedResolver({});
  resolver.resolveMx = () => Promise.reject(new TypeError('no DNS today'));
  assert.equal(told(await routesFor({}, { resolver }).forDomain('d')), 'dns 451 4.4.3 temporary');
});

test('where we are a server ourselves only better ones are tried', async () => {
  const names = {
    d: {
      mx: [
        [10, 'mx1'],
        [20, 'Here.example'],
        [20, 'mx2'],
        [30, 'mx3'],
      ],
    },
    ...two,
  } as const;
  assert.deepEqual(await find(names, 'd'), ['192.0.2.1/mx1']);
  const byAddress = {
    d: {
      mx: [
        [10, 'mx1'],
        [20, 'alias'],
        [30, 'mx2'],
      ],
    },
    ...two,
    alias: { a: ['198.51.100.99'] },
  } as const;
  assert.deepEqual(await find(byAddress, 'd'), ['192.0.2.1/mx1']);
});

test('mail that would come back to us is refused', async () => {
  assert.equal(
    await find(
      {
        d: {
          mx: [
            [10, 'here.example'],
            [20, 'mx1'],
          ],
        },
        ...two,
      },
      'd',
    ),
    'loop 554 5.4.6 permanent',
  );
  assert.equal(
    await find({ d: { mx: [[10, 'alias']] }, alias: { a: ['198.51.100.99'] } }, 'd'),
    'loop 554 5.4.6 permanent',
  );
  assert.equal(await find({ 'here.example': {} }, 'here.example'), 'loop 554 5.4.6 permanent');
  assert.equal(await find({}, '[198.51.100.99]'), 'loop 554 5.4.6 permanent');
});

test('mail is deferred while no better server than this one is known', async () => {
  const names = {
    d: {
      mx: [
        [10, 'mx1'],
        [20, 'alias'],
      ],
    },
    mx1: { a: 'timeout', aaaa: 'timeout' },
    alias: { a: ['198.51.100.99'] },
  } as const;
  assert.equal(await find(names, 'd'), 'dns 451 4.4.3 temporary');
});

test('private addresses are passed over unless they are allowed', async () => {
  const names = {
    d: {
      mx: [
        [10, 'inner'],
        [20, 'mx1'],
      ],
    },
    ...two,
    inner: { a: ['10.0.0.1', '127.0.0.1'], aaaa: ['::1'] },
  } as const;
  assert.deepEqual(await find(names, 'd'), ['192.0.2.1/mx1']);
  assert.equal(await find({ d: { mx: [[1, 'inner']] }, inner: names.inner }, 'd'), 'private 550 5.4.4 permanent');
  assert.deepEqual(
    await find({ d: { mx: [[1, 'inner']] }, inner: { a: ['127.0.0.1'] } }, 'd', { allowPrivate: true }),
    ['127.0.0.1/inner'],
  );
  assert.equal(await find({}, '[127.0.0.1]'), 'private 550 5.4.4 permanent');
});

test('an address literal is dialled as it is', async () => {
  assert.deepEqual(await find({}, '[192.0.2.5]'), ['192.0.2.5/192.0.2.5']);
  assert.deepEqual(await find({}, '[IPv6:2001:DB8::5]'), ['2001:db8::5/2001:db8::5']);
  assert.deepEqual(await find({}, '[127.0.0.1]', { allowPrivate: true }), ['127.0.0.1/127.0.0.1']);
});

test('no more than five addresses are found, of the best servers', async () => {
  const many = Array.from({ length: 30 }, (_, index) => `192.0.2.${index}`);
  const found = await find(
    {
      d: {
        mx: [
          [1, 'mx1'],
          [2, 'big'],
        ],
      },
      ...two,
      big: { a: many },
    },
    'd',
  );
  assert.equal(found.length, 5);
  assert.equal(found[0], '192.0.2.1/mx1');
});

test('a domain with a thousand servers costs few questions', async () => {
  const names: Record<string, FixedName> = {
    d: { mx: Array.from({ length: 1000 }, (_, index) => [index, `mx${index}.example`] as const) },
  };
  const resolver = new FixedResolver(names);
  assert.equal(told(await routesFor(names, { resolver }).forDomain('d')), 'no-address 451 4.4.4 temporary');
  assert.ok(resolver.questions.length <= 21, `${resolver.questions.length} questions`);
});

test('domains with the same servers are one site, whatever their order', async () => {
  const routes = routesFor({
    d: {
      mx: [
        [1, 'mx1'],
        [2, 'mx2'],
      ],
    },
    e: {
      mx: [
        [5, 'MX2'],
        [1, 'mx1'],
      ],
    },
    f: { a: ['192.0.2.1'] },
    ...two,
  });
  const sites = await Promise.all(['d', 'e', 'f'].map((domain) => routes.forDomain(domain)));
  assert.deepEqual(
    sites.map((search) => search.outcome === 'found' && search.site),
    ['mx1,mx2', 'mx1,mx2', 'f'],
  );
});

test('hosts of a route are names or addresses, in their order, without MX', async () => {
  const resolver = new FixedResolver({ ...two });
  const routes = routesFor({}, { resolver });
  const search = await routes.forHosts(['mx2', '[192.0.2.77]', '2001:db8::7', 'localhost', 'mx1'], {
    allowPrivate: true,
  });
  assert.deepEqual(told(search), [
    '192.0.2.2/mx2',
    '192.0.2.77/[192.0.2.77]',
    '2001:db8::7/2001:db8::7',
    '127.0.0.1/localhost',
    '::1/localhost',
  ]);
  assert.ok(!resolver.questions.some((question) => question.startsWith('MX')));
  assert.equal(told(await routes.forHosts(['nowhere'])), 'no-address 451 4.4.4 temporary');
});

test('a search that is stopped says so', async (t) => {
  const server = await DnsServer.start(t, { 'silent.example': { silent: true } });
  const resolver = new SystemResolver({ servers: [server.address], timeoutMs: 60_000, tries: 1 });
  const abort = new AbortController();
  const searching = routesFor({}, { resolver }).forDomain('silent.example', { signal: abort.signal });
  abort.abort();
  assert.equal(told(await searching), 'aborted 451 4.3.0 temporary');
});

test('zones of a real name server are followed to their end', async (t) => {
  const server = await DnsServer.start(t, {
    'example.com': {
      MX: [
        [10, 'alias.example.com'],
        [20, 'mx.example.com'],
      ],
    },
    'alias.example.com': { CNAME: 'mx0.example.com' },
    'mx0.example.com': { A: ['192.0.2.10'] },
    'mx.example.com': { A: ['192.0.2.11'], truncated: true },
    'null.example': { MX: [[0, '.']] },
    'plain.example': { A: ['192.0.2.12'] },
    'broken.example': { rcode: 'SERVFAIL' },
  });
  const resolver = new SystemResolver({ servers: [server.address], timeoutMs: 2000, tries: 1 });
  const routes = routesFor({}, { resolver });
  const find = async (domain: string) => told(await routes.forDomain(domain));
  assert.deepEqual(await find('example.com'), ['192.0.2.10/alias.example.com', '192.0.2.11/mx.example.com']);
  assert.deepEqual(await find('null.example'), 'null-mx 556 5.1.10 permanent');
  assert.deepEqual(await find('plain.example'), ['192.0.2.12/plain.example']);
  assert.deepEqual(await find('broken.example'), 'dns 451 4.4.3 temporary');
  assert.deepEqual(await find('nowhere.example'), 'no-domain 550 5.1.2 permanent');
});
