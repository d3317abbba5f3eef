import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ListenerOptions } from '../../../../core/smtp/server/listener-options.js';
import { SmtpClient } from '../../../support/smtp-client.js';
import { until } from '../../../support/until.js';
import { TestEngine } from './test-engine.js';

/** Lines sent one after the other, with the start of the reply that each must get. */
interface Conversation {
  readonly title: string;
  readonly hello?: string;
  readonly lines: readonly (readonly [line: string, reply: string])[];
}

const long = (length: number) => `NOOP ${'x'.repeat(length - 5)}`;

const conversations: readonly Conversation[] = [
  {
    title: 'S01 a command out of order is 503 and changes nothing',
    lines: [
      ['RCPT TO:<anna@localhost>', '503 5.5.1'],
      ['DATA', '503 5.5.1'],
      ['MAIL FROM:<a@example.org>', '250 2.1.0'],
      ['DATA', '503 5.5.1'],
      ['MAIL FROM:<b@example.org>', '503 5.5.1'],
      ['RCPT TO:<anna@localhost>', '250 2.1.5'],
      ['MAIL FROM:<b@example.org>', '503 5.5.1'],
      ['DATA', '354'],
    ],
  },
  {
    title: 'S03 the lesser commands',
    lines: [
      ['RSET', '250 2.0.0'],
      ['NOOP', '250 2.0.0'],
      ['NOOP with words', '250 2.0.0'],
      ['VRFY anna', '252 '],
      ['HELP', '214'],
      ['EXPN staff', '502 5.5.1'],
      ['ETRN example.org', '502 5.5.1'],
      ['TURN', '502 5.5.1'],
      ['WIZ', '500 5.5.2'],
      ['DEBUG', '500 5.5.2'],
      ['', '500 5.5.2'],
      ['DATA x', '501 5.5.4'],
      ['RSET x', '501 5.5.4'],
      ['QUIT', '221 2.0.0'],
    ],
  },
  {
    title: 'S04 a command line has 4096 characters at most',
    lines: [
      [long(512), '250'],
      [long(4096), '250'],
      [long(4097), '500 5.5.2'],
      [long(16_384), '500 5.5.2'],
      ['NOOP', '250'],
    ],
  },
  {
    title: 'S06 parameters of MAIL and RCPT that are not known, doubled or empty',
    lines: [
      ['MAIL FROM:<a@example.org> HOLDFOR=5', '555 5.5.4'],
      ['MAIL FROM:<a@example.org> AUTH=<>', '555 5.5.4'],
      ['MAIL FROM:<a@example.org> SIZE=1 SIZE=1', '501 5.5.4'],
      ['MAIL FROM:<a@example.org> BODY=', '501 5.5.4'],
      ['MAIL FROM:<a@example.org> SIZE', '501 5.5.4'],
      ['MAIL FROM:<a@example.org> =x', '501 5.5.4'],
      ['MAIL FROM:<a@example.org> BODY=BINARYMIME', '501 5.5.4'],
      ['MAIL FROM:<a@example.org> SMTPUTF8=yes', '501 5.5.4'],
      ['MAIL FROM:<a@example.org>SIZE=1', '501 5.5.4'],
      ['MAIL FROM: <a@example.org> body=8bitmime SIZE=100 SMTPUTF8', '250'],
      ['RCPT TO:<anna@localhost> FUTURE=1', '555 5.5.4'],
      ['RCPT TO:<anna@localhost> X', '555 5.5.4'],
      ['RCPT TO:<anna@localhost>', '250'],
    ],
  },
  {
    title: 'S07 SIZE beyond the limit, or no number',
    lines: [
      ['MAIL FROM:<a@example.org> SIZE=52428801', '552 5.3.4'],
      ['MAIL FROM:<a@example.org> SIZE=99999999999999999999', '552 5.3.4'],
      ['MAIL FROM:<a@example.org> SIZE=999999999999999999999', '501 5.5.4'],
      ['MAIL FROM:<a@example.org> SIZE=-1', '501 5.5.4'],
      ['MAIL FROM:<a@example.org> SIZE=abc', '501 5.5.4'],
      ['MAIL FROM:<a@example.org> SIZE=52428800', '250'],
    ],
  },
  {
    title: 'S32 paths',
    lines: [
      ['MAIL FROM:a@example.org', '501 5.5.4'],
      ['MAIL <a@example.org>', '501 5.5.4'],
      ['MAIL FROM:<a@example..org>', '553 5.1.7'],
      ['MAIL FROM:<ü@example.org>', '553 5.6.7'],
      ['MAIL FROM:<a@bücher.example>', '553 5.6.7'],
      ['MAIL FROM:<a\u0001b@example.org>', '501 5.5.4'],
      ['MAIL FROM:<>', '250'],
      ['RCPT TO:<>', '501 5.5.4'],
      ['RCPT TO:<postmaster>', '250'],
      ['RCPT TO:<"quoted > local"@localhost>', '250'],
      ['RCPT TO:<@relay.example:anna@localhost>', '250'],
      ['RCPT TO:<ü@localhost>', '553 5.6.7'],
      [`RCPT TO:<${'x'.repeat(253)}@localhost>`, '553 5.1.3'],
      ['RSET', '250'],
      ['MAIL FROM:<ü@bücher.example> SMTPUTF8', '250'],
      ['RCPT TO:<ü@localhost>', '250'],
    ],
  },
  {
    title: 'S33 mail that nobody has taken is refused',
    lines: [
      ['MAIL FROM:<anna@localhost>', '250'],
      ['RCPT TO:<someone@elsewhere.example>', '550 5.7.1'],
      ['RCPT TO:<someone%elsewhere.example@other.example>', '550 5.7.1'],
      ['RCPT TO:<@localhost:someone@elsewhere.example>', '550 5.7.1'],
      ['RCPT TO:<"someone@localhost"@elsewhere.example>', '550 5.7.1'],
      ['DATA', '503 5.5.1'],
    ],
  },
  {
    title: 'S34 a client may not speak for another one',
    lines: [
      ['XCLIENT ADDR=192.0.2.1', '550 5.7.1'],
      ['XFORWARD ADDR=192.0.2.1', '550 5.7.1'],
      ['PROXY TCP4 192.0.2.1 192.0.2.2 1 25', '500 5.5.2'],
    ],
  },
  {
    title: 'a second RSET leaves the session ready for MAIL',
    lines: [
      ['MAIL FROM:<a@example.org>', '250'],
      ['RSET', '250'],
      ['RSET', '250'],
      ['MAIL FROM:<a@example.org>', '250'],
    ],
  },
  {
    title: 'a hello within a transaction ends it',
    lines: [
      ['MAIL FROM:<a@example.org>', '250'],
      ['HELO again.example', '250 mx.test'],
      ['RCPT TO:<anna@localhost>', '503'],
      ['LHLO lmtp.example', '500'],
    ],
  },
];

describe('commands', () => {
  it('S32 a submission listener takes paths without brackets where it is lenient, and only there', async (test) => {
    const submission = { mode: 'submission', port: 0, allowPlaintextAuth: true } as const;
    const listeners = [{ ...submission, lenientPaths: true }, submission, { mode: 'mx' as const, port: 0 }];
    const engine = await TestEngine.start(test, { settings: { listeners } });
    const signIn = `AUTH PLAIN ${Buffer.from('\0anna\0secret').toString('base64')}`;
    const client = await engine.greeted(0);
    await client.command(signIn);
    const lines = [
      ['MAIL FROM:', '501 5.5.4'],
      ['MAIL FROM:anna@localhost>', '501 5.5.4'],
      ['MAIL FROM:anna@local..host', '553 5.1.7'],
      ['MAIL FROM: anna@localhost SIZE=10', '250'],
      ['RCPT TO:ben@localhost', '250'],
      ['RCPT TO: ben@localhost', '250'],
      ['RCPT TO: <carla@localhost>', '250'],
      ['RCPT TO:postmaster', '250'],
      ['RCPT TO:ben@localhost carla@localhost', '501 5.5.4'],
      ['RCPT TO:', '501 5.5.4'],
      ['RCPT TO:ü@localhost', '553 5.6.7'],
    ] as const;
    for (const [line, expected] of lines) {
      const { raw } = await client.command(line);
      assert.ok(raw.startsWith(expected), `${line}: ${raw}`);
    }
    assert.equal((await client.data('Subject: x\r\n\r\ny')).code, 250);
    assert.equal(engine.delivered[0]?.sender, 'anna@localhost');
    const taken = ['ben@localhost', 'ben@localhost', 'carla@localhost', 'postmaster@localhost'];
    assert.deepEqual(engine.delivered[0]?.recipients, taken);
    client.close();
    const strict = await engine.greeted(1);
    await strict.command(signIn);
    assert.match((await strict.command('MAIL FROM:anna@localhost')).raw, /^501 5\.5\.4 /);
    strict.close();
    assert.throws(() => ListenerOptions.parse({ mode: 'mx', lenientPaths: true }), /submission listeners only/);
  });

  it('S32 postmaster is taken at the address that the client connected to, and at no other', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [{ host: '::', port: 0 }] } });
    const own = { '127.0.0.1': '[127.0.0.1]', '::1': '[IPv6:::1]' };
    for (const [host, literal] of Object.entries(own)) {
      const client = await SmtpClient.greeted({ port: engine.port(), host });
      await client.command('MAIL FROM:<>');
      for (const path of [`postmaster@${literal}`, `PostMaster@${literal}`, 'postmaster']) {
        assert.match((await client.command(`RCPT TO:<${path}>`)).raw, /^250 /, path);
      }
      for (const path of [`anna@${literal}`, 'postmaster@[192.0.2.1]', 'postmaster@[IPv6:2001:db8::1]']) {
        assert.match((await client.command(`RCPT TO:<${path}>`)).raw, /^550 5\.7\.1 /, path);
      }
      assert.equal((await client.data('Subject: x\r\n\r\ny')).code, 250);
      client.close();
    }
    const taken = ['postmaster@localhost', 'PostMaster@localhost', 'postmaster@localhost'];
    assert.deepEqual(
      engine.delivered.map(({ recipients }) => recipients),
      [taken, taken],
    );
  });

  for (const { title, hello, lines } of conversations) {
    it(title, async (test) => {
      const engine = await TestEngine.start(test);
      const client = await engine.greeted(0, hello);
      for (const [line, expected] of lines) {
        const { raw } = await client.command(line);
        assert.ok(raw.startsWith(expected), `${line.slice(0, 60)}: ${raw}`);
      }
      client.close();
      const [closed] = await engine.untilLogged('closed');
      const { commands, answers } = closed?.fields ?? {};
      // DATA is answered by 354 and again at the dot, so the one that is left open is not answered.
      const open = lines.at(-1)?.[1] === '354' ? 1 : 0;
      assert.equal(Number(commands) - Number(answers), open);
    });
  }

  it('S01 MAIL and RCPT before a hello are 503', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.connect();
    await client.readReply();
    for (const line of ['MAIL FROM:<a@example.org>', 'RCPT TO:<anna@localhost>', 'DATA']) {
      assert.match((await client.command(line)).raw, /^503 5\.5\.1 /, line);
    }
    client.close();
  });

  it('S02 a hello needs one harmless name', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.connect();
    await client.readReply();
    const bad = [
      '',
      'two names',
      'x'.repeat(256),
      'a\u0001b',
      '<script>',
      'a(b);from=x',
      'ü.example',
      'a;b',
      '-a',
      'a@b',
    ];
    for (const name of bad) {
      assert.match((await client.command(`EHLO ${name}`)).raw, /^501 5\.5\.4 /, name);
    }
    const good = ['client.example', '[192.0.2.1]', '[IPv6:2001:db8::1]', '192.0.2.1', 'WIN_BOX', 'x'.repeat(255), 'a.'];
    for (const name of good) assert.equal((await client.command(`EHLO ${name}`)).code, 250, name);
    client.close();
  });

  it('S04 a line without end is cut at 16 KB', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    client.write(Buffer.alloc(10 * 1024 * 1024, 'x'));
    assert.match((await client.readReply()).raw, /^421 4\.7\.0 /);
    await client.waitForEnd();
    client.close();
  });

  it('S05 the error after the twentieth is 421 and the end, whatever the errors were', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    const errors = ['JUNK', 'RCPT TO:<a@localhost>', 'MAIL FROM:<>  X=1', 'DATA', 'EHLO', 'EXPN x'];
    for (let n = 0; n < 20; n += 1) {
      const { code } = await client.command(errors[n % errors.length] ?? '');
      assert.ok(code >= 500 && code < 560, `error ${n + 1} got ${code}`);
    }
    assert.equal((await client.command('NOOP')).code, 250);
    assert.match((await client.command('JUNK')).raw, /^421 4\.7\.0 /);
    await client.waitForEnd();
    assert.equal(client.ended, true);
  });

  it('S05 refused recipients count as errors', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    await client.command('MAIL FROM:<a@example.org>');
    const lines = Array.from({ length: 21 }, (_, n) => `RCPT TO:<unknown${n}@localhost>`);
    const codes = (await client.pipeline(lines)).map(({ code }) => code);
    assert.deepEqual(codes, [...Array<number>(20).fill(550), 421]);
    client.close();
  });

  it('S09 recipients beyond the limit are 452, and the others are delivered', async (test) => {
    const engine = await TestEngine.start(test, { settings: { limits: { recipients: 3 } } });
    const client = await engine.greeted();
    await client.command('MAIL FROM:<a@example.org>');
    for (const n of [1, 2, 3]) assert.equal((await client.command(`RCPT TO:<r${n}@localhost>`)).code, 250);
    assert.match((await client.command('RCPT TO:<r4@localhost>')).raw, /^452 4\.5\.3 /);
    assert.equal((await client.data('Subject: x\r\n\r\ny')).code, 250);
    assert.deepEqual(engine.delivered[0]?.recipients, ['r1@localhost', 'r2@localhost', 'r3@localhost']);
    client.close();
  });

  it('S09 the thousand-and-first recipient is one too many by default', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    const lines = Array.from({ length: 1001 }, (_, n) => `RCPT TO:<r${n}@localhost>`);
    const replies = await client.pipeline(['MAIL FROM:<>', ...lines]);
    assert.equal(replies.filter(({ code }) => code === 250).length, 1001);
    assert.match(replies.at(-1)?.raw ?? '', /^452 4\.5\.3 /);
    assert.equal((await client.data('Subject: x\r\n\r\ny')).code, 250);
    assert.equal(engine.delivered[0]?.recipients.length, 1000);
    client.close();
  });

  it('S11 pipelined commands are answered in order, one reply each, in one write', async (test) => {
    const engine = await TestEngine.start(test, {
      decide: (stage) =>
        stage === 'rcptTo'
          ? new Promise((resolve) =>
              setImmediate(() => resolve({ outcome: 'pass', hop: { target: 't', destination: 'd' } })),
            )
          : undefined,
    });
    const client = await engine.greeted();
    const recipients = Array.from({ length: 100 }, (_, n) => `RCPT TO:<${n % 3 === 0 ? 'bad' : `r${n}@localhost>`}`);
    const codes = (await client.pipeline(['MAIL FROM:<>', ...recipients.slice(0, 30), 'DATA'])).map(({ code }) => code);
    const expected = recipients.slice(0, 30).map((_, n) => (n % 3 === 0 ? 501 : 250));
    assert.deepEqual(codes, [250, ...expected, 354]);
    client.write('.\r\n');
    assert.equal((await client.readReply()).code, 250);
    client.close();
  });

  it('answers of one packet leave in one packet', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    let packets = 0;
    client.socket.on('data', () => (packets += 1));
    await client.pipeline(['NOOP', 'RSET', 'MAIL FROM:<>', 'RCPT TO:<a@localhost>', 'VRFY a', 'RSET']);
    assert.equal(packets, 1);
    client.close();
  });

  it('S22 a client that talks before the greeting is refused, with or without a line end', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [{ port: 0, greetDelayMs: 200 }] } });
    for (const early of ['EHLO early.example\r\n', 'E']) {
      const client = await engine.connect();
      client.write(early);
      assert.match((await client.readReply()).raw, /^554 /);
      await client.waitForEnd();
      client.close();
    }
    assert.equal(engine.logged('refused').length, 2);
  });

  it('S22 a client that waits for the delayed greeting is served', async (test) => {
    const engine = await TestEngine.start(test, { settings: { listeners: [{ port: 0, greetDelayMs: 20 }] } });
    const client = await engine.greeted();
    assert.equal((await client.command('NOOP')).code, 250);
    client.close();
  });

  const strangers: readonly (readonly [string, string | Buffer])[] = [
    ...['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE', 'CONNECT'].map(
      (verb) => [verb, `${verb} / HTTP/1.1\r\nHost: x\r\n\r\nEHLO x\r\nMAIL FROM:<a@example.org>\r\n`] as const,
    ),
    ['PRI', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['a TLS hello', Buffer.from('16030100c8010000c40303', 'hex')],
    ['binary', Buffer.from([0, 1, 2, 3, 255, 254, 10])],
    ['binary behind a letter', Buffer.from('A\u0000\u0001\u0002\r\n')],
  ];
  for (const [name, bytes] of strangers) {
    it(`S23 ${name} on the plain port is closed at the first line`, async (test) => {
      const asked: string[] = [];
      const engine = await TestEngine.start(test, {
        decide: (stage) => {
          asked.push(stage);
          return undefined;
        },
      });
      const client = await engine.connect();
      await client.readReply();
      client.write(bytes);
      assert.match((await client.readReply()).raw, /^421 /);
      await client.waitForEnd();
      assert.equal(client.ended, true);
      assert.deepEqual(asked, ['connect']);
      client.close();
    });
  }

  it('a line that ends with a bare LF is answered and not executed', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.greeted();
    client.write('MAIL FROM:<a@example.org>\nNOOP\r\n');
    const [refused, noop] = await client.readReplies(2);
    assert.match(refused?.raw ?? '', /^500 5\.5\.2 /);
    assert.equal(noop?.code, 250);
    assert.equal((await client.command('RCPT TO:<anna@localhost>')).code, 503);
    client.close();
  });

  it('commands cut into single bytes are the same commands', async (test) => {
    const engine = await TestEngine.start(test);
    const client = await engine.connect();
    await client.readReply();
    for (const byte of Buffer.from('EHLO a.example\r\nMAIL FROM:<a@example.org>\r\nRSET\r\n'))
      client.write(Buffer.from([byte]));
    assert.deepEqual(
      (await client.readReplies(3)).map(({ code }) => code),
      [250, 250, 250],
    );
    client.close();
  });

  it('a client that does not read its replies is not read from', async (test) => {
    const engine = await TestEngine.start(test, { settings: { limits: { commandsWithoutMessage: 1_000_000 } } });
    const client = await engine.greeted();
    client.socket.pause();
    const lines = 400_000;
    client.write('HELP\r\n'.repeat(lines));
    const received = await until('a server that stops reading', engine.steadyCount('smtp_received_bytes_total'));
    assert.ok(received < (lines * 6) / 2, `read ${received} of ${lines * 6} bytes`);
    client.close();
  });
});
