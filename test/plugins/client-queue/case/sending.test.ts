import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { HopFinder } from '../../../../core/dns/next-hop.js';
import { isProblem } from '../../../../core/problem.js';
import { openSession } from '../../../../core/smtp/client/opening.js';
import { CaseFiles } from '../../../../plugins/client-queue/case/transactions.js';
import type { SessionResult } from '../../../../plugins/client-queue/case/case-run.js';
import { CaseDefinition } from '../../../../plugins/client-queue/case/definition.js';
import { requestOfCase, Sending } from '../../../../plugins/client-queue/case/sending.js';
import { ClientQueueOptions } from '../../../../plugins/client-queue/options.js';
import { sessionAnswer } from '../../../../plugins/client-queue/http/sending.js';
import { selfSigned } from '../../../support/certificate.js';
import { SmtpSink } from '../../../support/smtp-sink.js';

const fixture = { files: new CaseFiles(undefined, 1000), hostname: 'mx.example.com', now: () => new Date() };
const envelope = { mail: 'ann@example.org', rcpt: ['bob@example.net'], text: 'Hello' };

/** Names and the address that each has. */
function finderOf(names: Readonly<Record<string, string>>): HopFinder {
  const find = (hosts: readonly string[]) =>
    Promise.resolve({
      outcome: 'found' as const,
      site: hosts.join(),
      hops: hosts.flatMap((host) => {
        const address = names[host] ?? (/^[\d.]+$/.test(host) ? host : undefined);
        return address === undefined ? [] : [{ host, address, preference: 0 }];
      }),
    });
  return { forHosts: find, forDomain: (domain) => find([domain]) };
}

interface Fixture {
  readonly options?: object;
  readonly names?: Readonly<Record<string, string>>;
}

async function run(definition: object, { options = {}, names = {} }: Fixture): Promise<SessionResult> {
  const settings = ClientQueueOptions.parse(options);
  const sending = new Sending({
    settings: () => settings,
    finder: finderOf(names),
    hostname: () => 'mx.example.com',
    open: openSession,
  });
  return sending.send(requestOfCase(CaseDefinition.parse(definition), fixture), new AbortController().signal);
}

const routed = (sink: SmtpSink, more: object = {}) => ({
  options: { routes: { sink: { mx: ['127.0.0.1'], port: sink.port, tls: 'never', ...more } } },
});

async function sinkOf(t: TestContext, script = {}): Promise<SmtpSink> {
  return SmtpSink.start(t, script);
}

async function refusal(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => 'none',
    (error: unknown) => {
      if (isProblem(error)) return error.problem;
      throw error;
    },
  );
}

describe('a case that is sent by MX', () => {
  const rcpt = ['bob@b.example.net'];
  const names = { 'b.example.net': '127.0.0.1' };

  test('goes to the configured port', async (t) => {
    const sink = await sinkOf(t);
    const result = await run({ envelopes: [{ ...envelope, rcpt }] }, { options: { port: sink.port }, names });
    assert.deepEqual([result.outcome, sink.messages.length], ['delivered', 1]);
  });

  for (const [title, options] of [
    ['for its domain', { requireTls: ['*.Example.net'] }],
    ['for all', { tls: 'require' }],
  ] as const) {
    test(`is not sent without the TLS that is required ${title}, whatever the caller says`, async (t) => {
      const sink = await sinkOf(t);
      const where = { tls: 'never', envelopes: [{ ...envelope, rcpt }] };
      const result = await run(where, { options: { port: sink.port, ...options }, names });
      assert.deepEqual([result.outcome, sink.messages.length], ['failed', 0]);
      assert.match(result.envelopes[0]?.recipients[0]?.response ?? '', /TLS is required/);
    });
  }
});

describe('a case that names no servers', () => {
  const options = (sink: SmtpSink) => {
    const way = { mx: ['127.0.0.1'], port: sink.port, tls: 'never' };
    return { routes: { partner: { ...way, domains: ['*.example.net'] } } };
  };

  test('takes the route of the domain of its recipients, as queued mail does', async (t) => {
    const sink = await sinkOf(t);
    const rcpt = ['bob@a.example.net', 'eve@b.example.net'];
    const result = await run({ envelopes: [{ ...envelope, rcpt }] }, { options: options(sink) });
    assert.deepEqual([result.outcome, sink.messages[0]?.recipients], ['delivered', rcpt]);
  });

  test('is refused when its recipients go different ways', async (t) => {
    const sink = await sinkOf(t);
    const rcpt = ['bob@a.example.net', 'eve@elsewhere.example'];
    assert.equal(await refusal(run({ envelopes: [{ ...envelope, rcpt }] }, { options: options(sink) })), 'invalid');
  });
});

describe('a case that is sent now', () => {
  test('is delivered, and its transcript returned', async (t) => {
    const sink = await sinkOf(t);
    const result = await run({ route: 'sink', envelopes: [{ ...envelope, repeat: 2 }] }, routed(sink));
    assert.equal(result.outcome, 'delivered');
    assert.equal(result.envelopes.length, 2);
    assert.equal(result.remote?.port, sink.port);
    assert.equal(sink.messages.length, 2);
    assert.notEqual(result.envelopes[0]?.messageId, result.envelopes[1]?.messageId);
    const said = sessionAnswer(result).transactions.map(({ command }) => command);
    for (const verb of ['EHLO', 'MAIL', 'RCPT', 'DATA']) assert.ok(said.includes(verb), `${verb} of ${said.join()}`);
    assert.match(result.envelopes[0]?.recipients[0]?.response ?? '', /^250 /);
    assert.ok((result.envelopes[1]?.transactions.length ?? 0) >= 3);
  });

  test('that a server refuses is a result', async (t) => {
    const steps = {
      rcpt: (moment: { line: string }) => (moment.line.includes('bad') ? '550 5.1.1 Nobody' : undefined),
    };
    const sink = await sinkOf(t, { steps });
    const rcpt = ['bob@example.net', 'bad@example.net'];
    const result = await run({ route: 'sink', envelopes: [{ ...envelope, rcpt }] }, routed(sink));
    assert.equal(result.outcome, 'partial');
    assert.deepEqual(
      result.envelopes[0]?.recipients.map(({ accepted }) => accepted),
      [true, false],
    );
    assert.match(result.envelopes[0]?.recipients[1]?.response ?? '', /550 .*Nobody/);
  });

  test('goes on over a new connection after a message that was refused', async (t) => {
    const steps = {
      rcpt: (moment: { line: string }) => (moment.line.includes('bad') ? '550 5.1.1 Nobody' : undefined),
    };
    const sink = await sinkOf(t, { steps });
    const envelopes = [{ ...envelope, rcpt: ['bad@example.net'], repeat: 2 }, envelope];
    const result = await run({ route: 'sink', envelopes }, routed(sink));
    assert.deepEqual(
      result.envelopes.map(({ outcome }) => outcome),
      ['failed', 'failed', 'delivered'],
    );
    assert.match(result.envelopes[1]?.recipients[0]?.response ?? '', /^550 /);
  });

  test('reaches a server that offers BDAT and does not know it', async (t) => {
    const capabilities = ['PIPELINING', '8BITMIME', 'CHUNKING'];
    const sink = await sinkOf(t, { capabilities, steps: { bdat: '502 5.5.1 What?' } });
    const result = await run({ route: 'sink', envelopes: [{ ...envelope, repeat: 2 }] }, routed(sink));
    assert.deepEqual([result.outcome, sink.messages.length, sink.connections], ['delivered', 2, 1]);
  });

  test('waits for a silent server once', async (t) => {
    const sink = await sinkOf(t, { steps: { mail: { silent: true } } });
    const result = await run({ route: 'sink', envelopes: [{ ...envelope, repeat: 3 }], timeout: 1 }, routed(sink));
    assert.deepEqual([result.outcome, result.envelopes.length, sink.connections], ['failed', 3, 1]);
  });

  test('to a server that stalls ends by its own time limit, with 200 and failed', async (t) => {
    const sink = await sinkOf(t, { steps: { greeting: { stall: true } } });
    const result = await run({ route: 'sink', envelopes: [envelope], timeout: 1 }, routed(sink));
    assert.equal(result.outcome, 'failed');
    assert.match(result.transactions.at(-1)?.error ?? '', /\w/);
  });

  test('checks its assertions', async (t) => {
    const sink = await sinkOf(t, { steps: { rcpt: '451 4.7.1 Greylisted' } });
    const assertions = {
      protocol: [
        ['RCPT', '^451 4[.]7'],
        ['rcpt', '^250'],
        ['CONNECT', '^220'],
        ['QUIT', '221'],
      ],
    };
    const result = await run({ route: 'sink', assertions, envelopes: [envelope] }, routed(sink));
    assert.deepEqual(
      result.assertions.map(({ verb, passed }) => [verb, passed]),
      [
        ['RCPT', true],
        ['RCPT', false],
        ['CONNECT', true],
        ['QUIT', true],
      ],
    );
  });

  for (const [name, pattern] of [
    ['is none', '('],
    ['looks ahead', '(?=a)'],
  ] as const) {
    test(`refuses an assertion whose pattern ${name}, before anything is sent`, async (t) => {
      const sink = await sinkOf(t);
      const envelopes = [envelope, { ...envelope, assertions: { protocol: [['RCPT', pattern]] } }];
      await assert.rejects(
        run({ route: 'sink', envelopes }, routed(sink)),
        /\/envelopes\/1\/assertions\/protocol\/0\/1: The pattern cannot be read/,
      );
      assert.equal(sink.connections, 0);
    });
  }

  test('F-S9 compiles costly patterns without holding up the server', async (t) => {
    const sink = await sinkOf(t);
    const protocol = Array.from({ length: 50 }, () => ['RCPT', '(a{1,30}){1,30}'.repeat(10)]);
    let longest = 0;
    let last = performance.now();
    const ticks = setInterval(() => {
      longest = Math.max(longest, performance.now() - last - 5);
      last = performance.now();
    }, 5);
    const result = await run({ route: 'sink', assertions: { protocol }, envelopes: [envelope] }, routed(sink));
    clearInterval(ticks);
    assert.equal(result.assertions.length, 50);
    // Without slices it was 9 s; a busy machine adds its own.
    assert.ok(longest < 1500, `the loop was held for ${longest} ms`);
  });

  test('signs in under TLS, and shows neither name nor password', async (t) => {
    const auth = { username: 'relay-user', password: 'hunter2-secret' };
    const sink = await sinkOf(t, { tls: selfSigned(), auth });
    const credentials = { user: auth.username, pass: auth.password };
    const result = await run(
      { route: 'sink', envelopes: [envelope] },
      routed(sink, { tls: 'require', verify: false, auth: credentials }),
    );
    assert.equal(result.outcome, 'delivered');
    assert.equal(sink.messages[0]?.user, 'relay-user');
    const shown = JSON.stringify(sessionAnswer(result));
    for (const secret of [
      auth.password,
      Buffer.from(`\0${auth.username}\0${auth.password}`).toString('base64'),
      Buffer.from(auth.password).toString('base64'),
    ])
      assert.ok(!shown.includes(secret), secret);
  });

  test('tries the next server of its route when one takes no call', async (t) => {
    const sink = await sinkOf(t);
    const route = routed(sink, { mx: ['127.0.0.2', '127.0.0.1'] });
    const result = await run({ route: 'sink', envelopes: [envelope] }, route);
    assert.equal(result.outcome, 'delivered');
  });
});

describe('servers that a caller names', () => {
  const forbidden = [
    '127.0.0.1',
    '::1',
    '[::1]',
    'localhost',
    'localhost.',
    '169.254.169.254',
    '0x7f000001',
    '2130706433',
    '127.1',
    '::ffff:127.0.0.1',
    'allowed.example',
    'rebound.example',
  ];
  for (const host of forbidden) {
    test(`are refused unless they are targets: ${host}`, async () => {
      const names = {
        'allowed.example': '192.0.2.1',
        'rebound.example': '127.0.0.1',
        localhost: '127.0.0.1',
        '::1': '::1',
      };
      const options = { targets: [{ host: '198.51.100.0/24', ports: [25] }] };
      assert.equal(
        await refusal(run({ mx: [host], port: 25, envelopes: [envelope] }, { options, names })),
        'forbidden',
      );
    });
  }

  test('are refused at other ports than those of the target', async () => {
    const options = { targets: [{ host: '127.0.0.1', ports: [2525] }] };
    for (const port of [22, 25, 80, 6379])
      assert.equal(await refusal(run({ mx: ['127.0.0.1'], port, envelopes: [envelope] }, { options })), 'forbidden');
  });

  test('may be targets by name, by address, and by network', async (t) => {
    const sink = await sinkOf(t);
    const names = { 'test.example': '127.0.0.1' };
    for (const [host, mx] of [
      ['test.example', 'TEST.example.'],
      ['127.0.0.1', '127.0.0.1'],
      ['127.0.0.0/8', 'test.example'],
    ] as const) {
      const options = { targets: [{ host, ports: [sink.port] }] };
      const result = await run({ mx: [mx], port: sink.port, tls: 'never', envelopes: [envelope] }, { options, names });
      assert.equal(result.outcome, 'delivered', `${host} ${mx}`);
    }
  });

  test('a route that is not configured is invalid, also one that every object has', async () => {
    for (const route of ['none', 'constructor', '__proto__'])
      assert.equal(await refusal(run({ route, envelopes: [envelope] }, {})), 'invalid');
  });
});
