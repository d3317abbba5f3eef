import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import fc from 'fast-check';
import type { Plugin } from '../../core/plugin.js';
import { drive, type DrivenSite } from '../kit/index.js';
import { startInProcess } from '../support/in-process-server.js';
import { SmtpClient, type ReceivedReply } from '../support/smtp-client.js';

/** Does at each stage what the name of the client, of the sender or a header field says. */
const deeds = `
import { accept, change, defer, definePlugin, discard, hold, next, problem, reject, route } from 'postern/plugin';

const never = new Promise(() => undefined);
const deed = {
  next: () => next(),
  later: async () => next(),
  accept: () => accept(),
  reject: () => reject(554, '5.7.1', 'No, and a line\\r\\nthat would break out'),
  reject421: () => reject(550, '5.7.0', 'Odd'),
  defer: async () => defer(450, '4.7.1', 'Later'),
  goodbye: () => defer(421, '4.7.0', 'Go away'),
  discard: () => discard('not wanted'),
  hold: () => hold('an operator shall see it'),
  nowhere: () => route({ target: 'nowhere', destination: '' }),
  away: () => route({ target: 'hold', destination: '' }),
  header: () => change({ change: 'add-header', name: 'X-Deed', value: 'done' }),
  brokenHeader: () => change({ change: 'add-header', name: 'X Deed', value: 'done' }),
  throws: () => { throw new Error('secret reason'); },
  rejects: async () => { throw new Error('secret reason'); },
  problem: () => { throw problem('mailbox-full'); },
  nonsense: () => 'yes',
  nothing: () => undefined,
  hangs: () => never,
};
const named = (name) => (Object.hasOwn(deed, name) ? deed[name]() : next());
const field = (message, name) => message.headers.find(([key]) => key.toLowerCase() === name)?.[1] ?? '';

export const deeds = definePlugin({
  name: 'deeds',
  setup({ smtp }) {
    const limit = { timeLimitMs: 20 };
    const sender = ({ transaction }, stage) => {
      const [at, what] = (transaction.reversePath?.local ?? '').split('.');
      return at === stage ? named(what) : next();
    };
    smtp.on('ehlo', limit, ({ name }) => named(name.split('.')[0]));
    smtp.on('mailFrom', limit, (input) => sender(input, 'mail'));
    smtp.on('rcptTo', limit, (input) => sender(input, 'rcpt'));
    smtp.on('rcptTo', { ...limit, order: 'last' }, (input) => sender(input, 'last'));
    smtp.on('message', limit, ({ message }) => named(field(message, 'x-message')));
    smtp.on('deliver', limit, ({ message }) => named(field(message, 'x-deliver')));
  },
});
`;

const words = [...deeds.matchAll(/^ {2}(\w+): (?:async )?\(\) =>/gm)].map(([, word = '']) => word);

interface Mail {
  readonly hello: string;
  readonly lines: readonly string[];
  readonly eml: string;
}

const word = fc.oneof(
  { arbitrary: fc.constant('next'), weight: 2 },
  { arbitrary: fc.constantFrom(...words), weight: 3 },
);
const sender = fc.oneof(
  fc.constant(''),
  fc.tuple(fc.constantFrom('mail', 'rcpt', 'last'), word).map(([stage, what]) => `${stage}.${what}@example.com`),
  fc.constantFrom('no address', 'ä@example.com', '@example.com'),
);
const recipient = fc.constantFrom(
  'postmaster@example.org',
  'Postmaster',
  'postMASTER+detail@example.org',
  'nobody@example.org',
  'bob%example.com@example.org',
  'bob@elsewhere.example',
  'bob@[192.0.2.1]',
);
/** The relay queue holds only what it could send on; mailboxes in memory hold everything. */
const holdable = (sender: string, recipients: readonly string[]): readonly string[] =>
  /hold|away/.test(sender) ? recipients.filter((address) => /^postmaster/i.test(address)) : recipients;

const mail: fc.Arbitrary<Mail> = fc
  .record({ hello: word, sender, recipients: fc.array(recipient, { maxLength: 3 }), message: word, deliver: word })
  .map(({ hello, sender, recipients, message, deliver }) => ({
    hello: `EHLO ${hello}.example`,
    lines: [`MAIL FROM:<${sender}>`, ...holdable(sender, recipients).map((address) => `RCPT TO:<${address}>`)],
    eml: `X-Message: ${message}\r\nX-Deliver: ${deliver}\r\n\r\nHello\r\n`,
  }));

/** What both answer, but for the id of the message. */
const told = (code: number, status: string | null | undefined, text: string): string =>
  `${code} ${status ?? '-'} ${text.replace(/queued as \w+/, 'queued as ID')}`;

async function live(port: number, { hello, lines, eml }: Mail): Promise<readonly string[]> {
  const client = await SmtpClient.connect({ port });
  const say = ({ code, status, lines }: ReceivedReply) =>
    told(code, status, lines.map((line) => (status === undefined ? line : line.slice(status.length + 1))).join('\n'));
  await client.readReply();
  const answers: string[] = [];
  for (const line of [hello, ...lines]) {
    answers.push(say(await client.command(line)));
    if (answers.at(-1)?.startsWith('421') === true) return answers;
  }
  answers.push(say(await client.data(eml)));
  client.close();
  return answers;
}

async function driven(site: DrivenSite, { hello, lines, eml }: Mail): Promise<readonly string[]> {
  const client = site.session({ ip: '127.0.0.1' });
  const answers: string[] = [];
  for (const line of [hello, ...lines]) {
    const { code, status, text } = await client.send(line);
    answers.push(told(code, status, text));
    if (code === 421) return answers;
  }
  const { code, status, text } = await client.data(eml);
  answers.push(told(code, status, text));
  await client.close();
  return answers;
}

suite('the kit answers as a server that listens', () => {
  test('the same to the same commands, whatever hooks do', async (t) => {
    const server = await startInProcess(
      t,
      `{ hostname: 'mx.example.org', domains: ['example.org'], sitePlugins: ['./deeds.mjs'],
        smtp: { listeners: [{ mode: 'mx', port: 0 }] } }`,
      {},
      (folder) => writeFile(join(folder, 'deeds.mjs'), deeds),
    );
    const module = (await import(pathToFileURL(join(server.folder, 'deeds.mjs')).href)) as { readonly deeds: Plugin };
    const site = await drive(module.deeds, { test: t, users: ['postmaster@example.org'] });
    let hooksDecided = 0;
    await fc.assert(
      fc.asyncProperty(mail, async (one) => {
        const [expected, got] = await Promise.all([live(server.portOf('mx'), one), driven(site, one)]);
        hooksDecided += expected.filter((answer) => /^(?:4|554)/.test(answer)).length;
        assert.deepEqual(withoutTls(got), expected);
      }),
      { numRuns: 150 },
    );
    assert.ok(hooksDecided > 50);
  });
});

/** The kit offers STARTTLS, this server has no certificate. */
const withoutTls = (answers: readonly string[]): readonly string[] =>
  answers.map((answer) => answer.replace('STARTTLS\n', ''));
