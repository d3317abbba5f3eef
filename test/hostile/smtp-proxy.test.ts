import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { atEnd, suiteEnding } from '../support/ending.js';
import { header, SmtpFixture } from './smtp-fixture.js';

const suite = suiteEnding();
type Verb = 'connect' | 'mail' | 'rcpt' | 'data' | 'dot';
const usual: Readonly<Record<Verb, string>> = { connect: '220', mail: '250', rcpt: '250', data: '354', dot: '250' };

describe('a server behind the proxy that means harm', () => {
  let fixture: SmtpFixture;
  let port: number;
  /** What it answers to one verb: a code, or nothing and the end. */
  let odd: { readonly at: Verb; readonly answer: string } = { at: 'connect', answer: '220' };
  before(async () => {
    const upstream = createServer((socket) => {
      let inText = false;
      const say = (verb: Verb) => {
        const answer = odd.at === verb ? odd.answer : usual[verb];
        if (answer === 'reset') socket.resetAndDestroy();
        else if (answer !== 'stall') socket.write(`${answer} upstream says so\r\n`);
      };
      socket.on('error', () => undefined);
      socket.on('data', (chunk) => {
        for (const line of String(chunk).split('\r\n').slice(0, -1)) {
          if (inText) {
            if (line !== '.') continue;
            inText = false;
            say('dot');
          } else if (/^(?:EHLO|HELO|RSET|NOOP)/i.test(line)) socket.write('250 hello\r\n');
          else if (/^MAIL/i.test(line)) say('mail');
          else if (/^RCPT/i.test(line)) say('rcpt');
          else if (/^DATA/i.test(line)) {
            inText = (odd.at === 'data' ? odd.answer : '354') === '354';
            say('data');
          } else socket.end('221 bye\r\n');
        }
      });
      say('connect');
    });
    upstream.listen(0, '127.0.0.1');
    await once(upstream, 'listening');
    atEnd(suite, () => void upstream.close());
    port = (upstream.address() as AddressInfo).port;
    const timeouts = { answerSeconds: 1, dataSeconds: 1 };
    // Each case is to meet the server itself, not what is remembered of the last one.
    const host = { hosts: ['127.0.0.1'], port, tls: 'never', timeouts, breaker: { failures: 100 } };
    const rules = [{ rcpt: '.*@behind\\.example', ...host }];
    fixture = await SmtpFixture.start(suite, {}, { plugins: { proxy: { rules } } });
  });

  const verbs = ['mail', 'rcpt', 'data', 'dot'] as const;
  const answered: Readonly<Record<string, RegExp>> = {
    450: /^450 4\.\d\.\d upstream says so\r\n$/,
    550: /^550 5\.\d\.\d upstream says so\r\n$/,
    421: /^4[25]1 4\.\d\.\d upstream says so\r\n$/,
    reset: /^451 4\.4\.\d /,
    stall: /^451 4\.4\.\d /,
  };
  // Those at connect come last: then no kept connection is left.
  const cases = [
    ...['450', '550', '421', 'reset', 'stall'].flatMap((answer) => verbs.map((at) => ({ at, answer }))),
    ...['421', 'stall', 'reset'].map((answer) => ({ at: 'connect', answer }) as const),
  ];
  for (const { at, answer } of cases) {
    test(`S35 ${answer} at ${at} is what the client gets, never a 250 of ours`, async () => {
      odd = { at, answer };
      const client = await fixture.greeted();
      assert.equal((await client.command('MAIL FROM:<a@sender.example>')).code, 250);
      const rcpt = await client.command('RCPT TO:<x@behind.example>');
      const final = rcpt.code === 250 ? await client.data(`${header}x`) : rcpt;
      assert.match(final.raw, answered[answer] ?? /never/);
      client.close();
      await fixture.assertAlive();
    });
  }

  test('H29 a rule that no linear engine can match is refused, and the old ones stay', async () => {
    const listeners = [{ port: 0 }];
    for (const rcpt of ['(?=a)b', '(a)\\1', '(']) {
      const rules = [{ rcpt, hosts: ['127.0.0.1'], port }];
      const text = JSON.stringify({ smtp: { listeners }, plugins: { proxy: { rules } } });
      await writeFile(join(fixture.server.folder, 'postern.json5'), text);
      const { status, text: why } = await fixture.server.admin.request('/config/reload', { method: 'POST', json: {} });
      assert.equal(status, 422, rcpt);
      assert.match(why, /postern\.json5:\d+/, 'with its place');
      assert.match(why, /rules/);
    }
  });
});
