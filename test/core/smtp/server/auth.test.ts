import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { selfSigned } from '../../../support/certificate.js';
import type { SmtpClient } from '../../../support/smtp-client.js';
import { until } from '../../../support/until.js';
import { TestClock, TestEngine, type TestEngineOptions } from './test-engine.js';

const base64 = (text: string) => Buffer.from(text).toString('base64');
const plain = (username: string, password: string, authzid = '') =>
  `AUTH PLAIN ${base64(`${authzid}\0${username}\0${password}`)}`;

const submission = { port: 0, mode: 'submission' as const, allowPlaintextAuth: true };
const settings = { listeners: [submission] };

async function login(client: SmtpClient, username: string, password: string): Promise<string> {
  await client.command('AUTH LOGIN');
  await client.command(base64(username));
  return (await client.command(base64(password))).raw;
}

describe('AUTH', () => {
  it('lets the user in by PLAIN and LOGIN, with and without an initial response', async (test) => {
    const engine = await TestEngine.start(test, { settings });
    const ways: readonly ((client: SmtpClient) => Promise<string>)[] = [
      async (client) => (await client.command(plain('anna', 'secret'))).raw,
      async (client) => (await client.command(plain('anna', 'secret', 'anna'))).raw,
      async (client) => {
        assert.equal((await client.command('auth plain')).raw, '334 \r\n');
        return (await client.command(base64('\0anna\0secret'))).raw;
      },
      (client) => login(client, 'anna', 'secret'),
      async (client) => {
        await client.command(`AUTH LOGIN ${base64('anna')}`);
        return (await client.command(base64('secret'))).raw;
      },
    ];
    for (const way of ways) {
      const client = await engine.greeted();
      assert.match((await client.command('MAIL FROM:<anna@localhost>')).raw, /^530 5\.7\.0 /);
      assert.equal(await way(client), '235 2.7.0 Signed in\r\n');
      await client.command('MAIL FROM:<anna@localhost> AUTH=<>');
      assert.equal((await client.command('RCPT TO:<someone@elsewhere.example>')).code, 250);
      assert.equal((await client.data('Subject: x\r\n\r\ny')).code, 250);
      assert.deepEqual(engine.delivered.at(-1)?.transaction.session.user, { username: 'anna@localhost' });
      client.close();
    }
    assert.equal(await engine.count('smtp_auth_total'), ways.length);
  });

  it('S18 where TLS is to come first, AUTH is neither listed nor taken', async (test) => {
    const engine = await TestEngine.start(test, {
      settings: { listeners: [{ ...submission, allowPlaintextAuth: false, tls: 'starttls', ...selfSigned() }] },
    });
    const client = await engine.connect();
    await client.readReply();
    const before = await client.command('EHLO client.example');
    assert.ok(!before.lines.some((line) => line.startsWith('AUTH')));
    assert.ok(before.lines.includes('STARTTLS'));
    assert.match((await client.command(plain('anna', 'secret'))).raw, /^538 5\.7\.11 /);
    assert.match((await client.command('MAIL FROM:<anna@localhost>')).raw, /^530 5\.7\.0 STARTTLS/);
    await client.command('STARTTLS');
    await client.startTls();
    const after = await client.command('EHLO client.example');
    assert.ok(after.lines.includes('AUTH PLAIN LOGIN'));
    assert.ok(!after.lines.includes('STARTTLS'));
    assert.equal((await client.command(plain('anna', 'secret'))).code, 235);
    client.close();
  });

  it('S18 without TLS nobody signs in, on loopback too, unless the configuration says so', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [{ port: 0, mode: 'submission' }] } });
    const client = await engine.connect();
    await client.readReply();
    assert.doesNotMatch((await client.command('EHLO client.example')).raw, /AUTH/);
    assert.match((await client.command(plain('anna', 'secret'))).raw, /^538 5\.7\.11 /);
    assert.match((await client.command('MAIL FROM:<anna@localhost>')).raw, /^530 5\.7\.0 /);
    client.close();
  });

  it('a listener of mode mx has no AUTH', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.connect();
    await client.readReply();
    assert.ok(!(await client.command('EHLO client.example')).lines.some((line) => line.startsWith('AUTH')));
    assert.equal((await client.command(plain('anna', 'secret'))).code, 502);
    client.close();
  });

  it('S19 AUTH that is malformed, misplaced or given up', async (test) => {
    const engine = await TestEngine.start(test, { settings: { ...settings, limits: { authFailures: 100 } } });
    const client = await engine.connect();
    await client.readReply();
    assert.equal((await client.command(plain('anna', 'secret'))).code, 503);
    await client.command('EHLO client.example');
    const cases: readonly (readonly [string, number])[] = [
      ['AUTH PLAIN !!!!', 501],
      ['AUTH PLAIN abc', 501],
      ['AUTH PLAIN =', 501],
      [`AUTH PLAIN ${base64('a\0b\0c\0d')}`, 501],
      [`AUTH PLAIN ${base64('no separators')}`, 501],
      [`AUTH PLAIN ${base64('\0an\r\nna\0x')}`, 501],
      ['AUTH PLAIN a b', 501],
      ['AUTH', 501],
      ['AUTH CRAM-MD5', 504],
      ['AUTH CONTROL_CHARS', 504],
      [plain('anna', 'secret', 'bert'), 535],
      [`AUTH PLAIN ${Buffer.from('\0\xff\0secret', 'latin1').toString('base64')}`, 535],
      [`AUTH PLAIN ${'A'.repeat(12_288)}`, 500],
    ];
    for (const [line, code] of cases) assert.equal((await client.command(line)).code, code, line.slice(0, 60));
    await client.command('AUTH PLAIN');
    assert.equal((await client.command('*')).code, 501);
    await client.command('AUTH LOGIN');
    assert.equal((await client.command('B'.repeat(5000))).code, 500);
    assert.equal((await client.command('NOOP')).code, 250);
    assert.equal(await login(client, 'anna', 'secret'), '235 2.7.0 Signed in\r\n');
    assert.equal((await client.command(plain('anna', 'secret'))).code, 503);
    client.close();
  });

  it('S19 AUTH within a transaction is 503', async (test) => {
    const engine = await TestEngine.start(test, {
      settings,
      decide: (stage) => (stage === 'auth' ? { outcome: 'pass', user: { username: 'u' } } : undefined),
    });
    const client = await engine.greeted();
    await client.command(plain('anna', 'secret'));
    await client.command('MAIL FROM:<anna@localhost>');
    assert.equal((await client.command(plain('anna', 'secret'))).code, 503);
    client.close();
  });

  it('S20 the fourth wrong password of a session is 421 and the end', async (test) => {
    const engine = await TestEngine.start(test, { settings });
    const client = await engine.greeted();
    for (const _ of [1, 2, 3]) assert.match((await client.command(plain('anna', 'no'))).raw, /^535 5\.7\.8 /);
    assert.match((await client.command(plain('anna', 'no'))).raw, /^421 4\.7\.0 /);
    await client.waitForEnd();
    client.close();
  });

  it('S20 answers to wrong passwords wait as long as the configuration says', async (test) => {
    const limits = { exemptLoopback: false, authDelaySeconds: [0.1, 0.2, 0.3] };
    const engine = await TestEngine.start(test, { settings: { ...settings, limits } });
    const client = await engine.greeted();
    const start = performance.now();
    for (const _ of [1, 2, 3]) await client.command(plain('anna', 'no'));
    assert.ok(performance.now() - start >= 590);
    client.close();
  });

  it('S20 exempt clients do not wait', async (test) => {
    const limits = { exemptLoopback: true, authDelaySeconds: [60, 60, 60] };
    const engine = await TestEngine.start(test, { settings: { ...settings, limits } });
    const client = await engine.greeted();
    for (const _ of [1, 2, 3]) assert.equal((await client.command(plain('anna', 'no'))).code, 535);
    client.close();
  });

  it('S20 an address with too many wrong passwords gets 454 until the window is over', async (test) => {
    const clock = new TestClock();
    const limits = { exemptLoopback: false, authDelaySeconds: [], authFailuresPerAddress: 3, authFailures: 2 };
    const options: TestEngineOptions = { settings: { ...settings, limits }, clock };
    const engine = await TestEngine.start(test, options);
    const first = await engine.greeted();
    for (const _ of [1, 2]) assert.equal((await first.command(plain('anna', 'no'))).code, 535);
    first.close();
    const second = await engine.greeted();
    assert.equal((await second.command(plain('anna', 'no'))).code, 535);
    assert.match((await second.command(plain('anna', 'secret'))).raw, /^454 4\.7\.0 /);
    clock.advance(1201);
    second.close();
    const third = await engine.greeted();
    assert.equal((await third.command(plain('anna', 'secret'))).code, 235);
    third.close();
  });

  it('S20 sessions that wait at a prompt while the limit is reached get 454, and no password of theirs is checked', async (test) => {
    const checked: string[] = [];
    const engine = await TestEngine.start(test, {
      settings: { ...settings, limits: { exemptLoopback: false, authDelaySeconds: [], authFailuresPerAddress: 3 } },
      decide: (stage, input) => {
        if (stage === 'auth' && 'password' in input) checked.push(input.password);
        return undefined;
      },
    });
    const waiting = await Promise.all(Array.from({ length: 6 }, () => engine.greeted()));
    for (const [n, client] of waiting.entries()) {
      await client.command(n % 2 === 0 ? `AUTH LOGIN ${base64('anna')}` : 'AUTH PLAIN');
    }
    const other = await engine.greeted();
    for (const _ of [1, 2, 3]) assert.equal((await other.command(plain('anna', 'no'))).code, 535);
    const refusal = (await other.command(plain('anna', 'no'))).raw;
    assert.match(refusal, /^454 4\.7\.0 /);
    const given = (n: number) => (n < 3 ? 'secret' : 'wrong');
    const answers = await Promise.all(
      waiting.map((client, n) => client.command(base64(n % 2 === 0 ? given(n) : `\0anna\0${given(n)}`))),
    );
    assert.deepEqual(new Set(answers.map(({ raw }) => raw)), new Set([refusal]));
    assert.deepEqual(checked, ['no', 'no', 'no']);
    for (const client of [...waiting, other]) client.close();
  });

  it('S20 wrong passwords that come at once are no more than the limit, right ones are all let in', async (test) => {
    let checks = 0;
    const engine = await TestEngine.start(test, {
      settings: { ...settings, limits: { exemptLoopback: false, authDelaySeconds: [0.05], authFailuresPerAddress: 5 } },
      decide: async (stage, input) => {
        if (stage !== 'auth' || !('password' in input)) return { outcome: 'pass' };
        checks += 1;
        await new Promise((resolve) => setTimeout(resolve, 10));
        return input.password === 'secret' ? { outcome: 'pass', user: { username: 'anna' } } : { outcome: 'pass' };
      },
    });
    const attempt = async (password: string) => {
      const clients = await Promise.all(Array.from({ length: 40 }, () => engine.greeted()));
      const answers = await Promise.all(clients.map((client) => client.command(plain('anna', password))));
      for (const client of clients) client.close();
      await engine.untilNoSession();
      return answers.map(({ code }) => code);
    };
    assert.deepEqual(new Set(await attempt('secret')), new Set([235]));
    checks = 0;
    const codes = await attempt('wrong');
    assert.deepEqual(
      [535, 454].map((code) => codes.filter((each) => each === code).length),
      [5, 35],
    );
    assert.equal(checks, 5);
  });

  it('S20 an address that comes over the limit is one line of the log for each window, however often it tries', async (test) => {
    const clock = new TestClock();
    const limits = { exemptLoopback: false, authDelaySeconds: [], authFailuresPerAddress: 3, authFailures: 100 };
    const engine = await TestEngine.start(test, { settings: { ...settings, limits }, clock });
    const told = () => engine.logged('too many wrong passwords: the address has to wait');
    let client = await engine.greeted();
    // A session that idles for so long would be closed.
    const advance = async (seconds: number) => {
      client.close();
      clock.advance(seconds);
      client = await engine.greeted();
    };
    const wrong = async () => (await client.command(plain('anna', 'no'))).code;
    assert.deepEqual([await wrong(), await wrong()], [535, 535]);
    await advance(500);
    // The window slides: five minutes later one more try is let in, and comes over the limit again.
    for (const seconds of [0, 310]) {
      if (seconds > 0) await advance(seconds);
      assert.equal(await wrong(), 535);
      for (let n = 0; n < 5; n += 1) assert.equal(await wrong(), 454);
      assert.deepEqual(
        told().map(({ level, fields }) => [level, fields['remote'], Number(fields['seconds']) > 0]),
        [['warn', '127.0.0.1', true]],
      );
    }
    const refused = engine.logged('sign-in refused');
    assert.deepEqual(
      refused.map(({ fields }) => [fields['remote'], fields['user']]),
      Array.from({ length: 4 }, () => ['127.0.0.1', 'anna']),
    );
    await advance(1200);
    assert.deepEqual([await wrong(), await wrong(), await wrong(), await wrong()], [535, 535, 535, 454]);
    assert.equal(told().length, 2);
    client.close();
  });

  it('S20 wrong passwords within the limit, and those of exempt clients, are no such line', async (test) => {
    for (const limits of [{ exemptLoopback: false, authDelaySeconds: [] }, { authFailuresPerAddress: 1 }]) {
      const engine = await TestEngine.start(test, { settings: { ...settings, limits } });
      const client = await engine.greeted();
      for (const _ of [1, 2, 3]) assert.equal((await client.command(plain('anna', 'no'))).code, 535);
      assert.deepEqual(engine.logged('too many wrong passwords: the address has to wait'), []);
      client.close();
    }
  });

  it('a hook that has no answer now is 4yz and no failure', async (test) => {
    const busy = { outcome: 'refuse', reply: { code: 454, status: '4.7.0', lines: ['Busy'] } } as const;
    const engine = await TestEngine.start(test, {
      settings: { ...settings, limits: { authFailures: 1 } },
      decide: (stage) => (stage === 'auth' ? Promise.resolve(busy) : undefined),
    });
    const client = await engine.greeted();
    for (const _ of [1, 2, 3]) assert.equal((await client.command(plain('anna', 'x'))).code, 454);
    client.close();
  });

  it('H25 no password of an attempt is ever in the log; the name is, cut', async (test) => {
    const engine = await TestEngine.start(test, { settings });
    const client = await engine.greeted();
    await client.command(plain('some-user', 'planted-password'));
    await login(client, 'u'.repeat(200), 'planted-password');
    await client.command(`AUTH PLAIN ${base64('planted')} x`);
    await client.command('QUIT');
    await until('a closed session', () => (engine.logged('closed').length > 0 ? true : undefined));
    const log = JSON.stringify(engine.lines);
    for (const secret of ['planted', base64('planted'), base64('planted-password'), base64('\0planted')]) {
      assert.ok(!log.includes(secret.replace(/=+$/, '')), secret);
    }
    const names = engine.logged('sign-in refused').map(({ fields }) => fields['user']);
    assert.deepEqual(names, ['some-user', 'u'.repeat(100)]);
    client.close();
  });
});
