import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { provide } from '../../../../core/contracts/service.js';
import { directory, type Directory, type MailUser } from '../../../../core/contracts/directory.js';
import { parseAddress } from '../../../../core/mime/address.js';
import { lmtp } from '../../../../plugins/upstream/lmtp/index.js';
import { LmtpOptions } from '../../../../plugins/upstream/lmtp/options.js';
import { selfSigned } from '../../../support/certificate.js';
import { freePort } from '../../../support/free-port.js';
import { type SinkScript, SmtpSink } from '../../../support/smtp-sink.js';
import { address, proxyFixture, said, send, text, type ProxyFixtureOptions } from '../proxy/proxy-fixture.js';

const queued = /^250 2\.0\.0 Ok: queued as /;
const anna = 'anna@office.example';
const ben = 'ben@office.example';

const userOf = (username: string, disabled = false): MailUser => ({
  username,
  address: parseAddress(username),
  aliases: [],
  quota: null,
  disabled,
});

/** Knows anna with her alias `a`, and gone, who is switched off. */
const people = {
  resolve: ({ address: asked }) => {
    if (asked === 'gone@office.example') return userOf(asked, true);
    return asked === anna || asked === 'a@office.example' ? userOf(anna) : undefined;
  },
} satisfies Pick<Directory, 'resolve'>;

async function routed(
  t: TestContext,
  { script = {}, route = {}, ...given }: Partial<ProxyFixtureOptions> & { script?: SinkScript; route?: object } = {},
) {
  const sink = await SmtpSink.start(t, { protocol: 'lmtp', ...script });
  const hosts = [`127.0.0.1:${sink.port}`];
  const routes = [{ name: 'office', domains: ['office.example'], hosts, tls: 'never', ...route }];
  const fixture = await proxyFixture(t, {
    plugin: lmtp,
    lent: [provide(directory, people as Directory)],
    ...given,
    options: { routes },
  });
  return { ...fixture, sink, client: await fixture.client(given.modes?.[0]) };
}

describe('recipients of a route', () => {
  test('are known to the LMTP server, which is asked', async (t) => {
    const { client, sink, holders } = await routed(t, { script: { steps: { rcpt: [undefined, '550 5.1.1 Who?'] } } });
    assert.deepEqual(await address(client, anna, 'nobody@office.example'), [
      '250 2.1.5 Recipient fine',
      '550 5.1.1 Who?',
    ]);
    assert.match(said(await client.data(text)), /^250 2\.0\.0 /);
    assert.deepEqual(
      sink.messages.map(({ recipients }) => recipients),
      [[anna]],
    );
    assert.equal(sink.commands[0], 'LHLO mail.example.org');
    assert.deepEqual(holders(), []);
  });

  test('or to the directory: then the server is not asked before the message', async (t) => {
    const { client, sink } = await routed(t, { route: { verify: 'directory' } });
    assert.deepEqual(await address(client, anna, 'a@office.example', 'who@office.example', 'gone@office.example'), [
      '250 2.1.5 Recipient OK',
      '250 2.1.5 Recipient OK',
      '550 5.1.1 No such user here',
      '550 5.2.1 This mailbox is disabled',
    ]);
    assert.equal(sink.connections, 0);
    assert.match(said(await client.data(text)), /^250 2\.0\.0 /);
    assert.deepEqual(sink.messages[0]?.recipients, [anna], 'an alias goes by the name of its user');
  });

  test('may be single users, by their aliases too; their domain stays here', async (t) => {
    const { client, sink, holders } = await routed(t, {
      route: { domains: [], users: ['Anna@office.example', 'x@localhost'] },
    });
    assert.match(await send(client, 'a@office.example', 'x@localhost', 'y@localhost'), queued);
    assert.deepEqual(sink.messages[0]?.recipients, [anna, 'x@localhost']);
    assert.deepEqual(holders(), ['local y@localhost']);
  });

  test('are one for all names of a user, who has one copy', async (t) => {
    const { client, sink } = await routed(t, {
      script: { steps: { rcpt: ['450 4.2.1 Later', '250 2.1.5 Anna is here'], dot: ['250 2.0.0 Kept'] } },
      route: { domains: [], users: [anna, 'x@localhost'] },
    });
    assert.deepEqual(await address(client, anna, 'a@office.example', 'x@localhost', anna, 'a@office.example'), [
      '450 4.2.1 Later',
      ...Array.from({ length: 4 }, () => '250 2.1.5 Anna is here'),
    ]);
    assert.equal(said(await client.data(text)), '250 2.0.0 Kept');
    const asked = sink.commands.filter((line) => line.startsWith('RCPT'));
    assert.deepEqual(asked, [`RCPT TO:<${anna}>`, `RCPT TO:<${anna}>`, 'RCPT TO:<x@localhost>']);
    assert.deepEqual(sink.messages[0]?.recipients, [anna, 'x@localhost']);
  });

  test('without a route are none of it', async (t) => {
    const { client, sink } = await routed(t);
    assert.deepEqual(await address(client, 'x@other.example'), ['550 5.7.1 Relaying denied']);
    assert.equal(sink.connections, 0);
  });
});

describe('what the LMTP server answers to the message', () => {
  test('counts for each: 4yz is queued, 5yz is bounced', async (t) => {
    const dot = ['250 2.0.0 Yes', '452 4.2.2 Full', '550 5.2.1 Gone'];
    const { client, holders, target } = await routed(t, { script: { steps: { dot } } });
    assert.match(await send(client, anna, ben, 'cleo@office.example'), queued);
    assert.deepEqual(holders(), [`retry ${ben}`, 'bounce cleo@office.example']);
    assert.deepEqual(target('retry').recipients[0]?.hop?.data, {
      reply: { code: 452, status: '4.2.2', lines: ['Full'] },
      hop: { target: 'lmtp', destination: 'office' },
    });
  });

  test('is the answer when all agree', async (t) => {
    for (const dot of ['452 4.2.2 Full', '550 5.2.1 Gone', '250 2.0.0 Kept']) {
      const { client, holders } = await routed(t, { script: { steps: { dot } } });
      assert.equal(await send(client, anna, ben), dot);
      assert.deepEqual(holders(), []);
    }
  });

  test('is given to each recipient of an LMTP client, in order, duplicates included', async (t) => {
    const dot = ['250 2.0.0 One', '452 4.2.2 Two'];
    const { client } = await routed(t, { script: { steps: { dot } }, modes: ['lmtp'] });
    await address(client, anna, 'x@localhost', ben, anna);
    await client.command('DATA');
    client.write('Subject: x\r\n\r\nx\r\n.\r\n');
    const replies = (await client.readReplies(4)).map(said);
    assert.deepEqual([replies[0], replies[2], replies[3]], ['250 2.0.0 One', '452 4.2.2 Two', '250 2.0.0 One']);
    assert.match(replies[1] ?? '', queued);
  });

  test('is lost with the connection: recipients without a reply are tried again', async (t) => {
    const { client, holders } = await routed(t, {
      script: { steps: { dot: ({ nth }) => (nth === 0 ? '250 2.0.0 Yes' : { reset: true }) } },
    });
    assert.match(await send(client, anna, ben), queued);
    assert.deepEqual(holders(), [`retry ${ben}`]);
  });

  test('is one reply too few: that ends in time, and the missing one is tried again', async (t) => {
    const { client, holders } = await routed(t, {
      script: { steps: { dot: ({ nth }) => (nth === 0 ? '250 2.0.0 Yes' : { silent: true }) } },
      route: { timeouts: { dataSeconds: 1 } },
    });
    assert.match(await send(client, anna, ben), queued);
    assert.deepEqual(holders(), [`retry ${ben}`]);
  });
});

describe('two routes in one message', () => {
  test('both get it; what one of them puts off is queued', async (t) => {
    const first = await SmtpSink.start(t, { protocol: 'lmtp' });
    const second = await SmtpSink.start(t, { protocol: 'lmtp', steps: { dot: '451 4.3.0 Later' } });
    const route = (name: string, { port }: SmtpSink) => ({
      domains: [`${name}.example`],
      hosts: [`127.0.0.1:${port}`],
      tls: 'never',
    });
    const options = { routes: [route('one', first), route('two', second)] };
    const { client, holders } = await proxyFixture(t, { plugin: lmtp, options });
    assert.match(await send(await client(), 'a@one.example', 'b@two.example', 'c@one.example'), queued);
    assert.deepEqual(first.messages[0]?.recipients, ['a@one.example', 'c@one.example']);
    assert.deepEqual(holders(), ['retry b@two.example']);
  });
});

describe('the servers of a route', () => {
  const { key, cert } = selfSigned();

  test('are tried in order, over TLS where it is wanted, and connections are kept', async (t) => {
    const sink = await SmtpSink.start(t, { protocol: 'lmtp', tls: { key, cert } });
    const hosts = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${sink.port}`];
    const routes = [{ domains: ['office.example'], hosts, tls: 'require', tlsVerify: false }];
    const fixture = await proxyFixture(t, { plugin: lmtp, options: { routes } });
    const client = await fixture.client();
    for (let n = 0; n < 3; n += 1) assert.match(await send(client, anna), /^250 /);
    assert.deepEqual([sink.connections, sink.messages.every(({ encrypted }) => encrypted)], [1, true]);
  });

  test('that are dead: the sender gets a 4xx', async (t) => {
    const hosts = [`127.0.0.1:${await freePort()}`];
    for (const verify of ['rcpt', 'directory']) {
      const { client, holders } = await routed(t, { route: { hosts, verify } });
      const [reply = ''] = await address(client, anna);
      assert.match(verify === 'rcpt' ? reply : said(await client.data(text)), /^451 4\.4\.1 /);
      assert.deepEqual(holders(), []);
    }
  });

  test('are shown with counts', async (t) => {
    const fixture = await routed(t, { script: { steps: { rcpt: [undefined, '550 5.1.1 Who?'] } } });
    await send(fixture.client, anna, ben);
    const { routes } = (await fixture.json('/lmtp')) as {
      routes: { counts: Record<string, number>; hosts: unknown }[];
    };
    const { bytes = 0, ...counts } = routes[0]?.counts ?? {};
    assert.deepEqual(counts, { matched: 2, accepted: 1, refused: 1, deferred: 0, messages: 1 });
    assert.ok(bytes > 0);
    assert.match(await fixture.page('/lmtp'), /office\.example/);
    const { body } = await fixture.metrics.exposition.render('prometheus');
    assert.match(body, /postern_lmtp_recipients_total\{route="office",result="refused"\} 1/);
  });
});

test('options that cannot be are named with their place', () => {
  const complaints = (...routes: readonly object[]) =>
    LmtpOptions.safeParse({ routes: routes.map((route) => ({ hosts: ['h'], ...route })) }).error?.issues.map(
      ({ path }) => path.join('.'),
    );
  assert.deepEqual(complaints({}), ['routes.0']);
  assert.deepEqual(complaints({ domains: ['not a domain'] }), ['routes.0.domains.0']);
  assert.deepEqual(complaints({ users: ['anna'] }), ['routes.0.users.0']);
  assert.deepEqual(complaints({ name: 'a', domains: ['a.example'] }, { name: 'a', domains: ['b.example'] }), [
    'routes.1.name',
  ]);
});
