import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { z } from 'zod';
import { HttpClient } from '../support/http-client.js';
import { startInProcess } from '../support/in-process-server.js';
import { SmtpClient } from '../support/smtp-client.js';

/** A site's plugin that has an opinion of everything: what it answers is in the words of the client. */
const opinions = `
import { accept, defer, definePlugin, discard, hold, next, reject, route, z } from 'postern/plugin';

let asked = 0;
const say = (text) => {
  if (text.includes('reject')) return reject(554, '5.7.1', 'Not ' + text);
  if (text.includes('defer')) return defer(450, '4.7.1', 'Later ' + text);
  if (text.includes('discard')) return discard('unwanted');
  if (text.includes('hold')) return hold('to be seen');
  if (text.includes('route')) return route({ target: 'relay', destination: 'elsewhere.example' });
  if (text.includes('accept')) return accept();
  if (text.includes('throw')) throw new Error('on purpose');
  return next();
};
const remember = ({ session, transaction }) => {
  if ((session ?? transaction.session).dryRun !== true) asked += 1;
};

export default definePlugin({
  name: 'opinions',
  options: z.strictObject({}),
  setup({ smtp, metrics }) {
    metrics.gauge('opinions_asked', 'Opinions', [], (gauge) => gauge.set(asked));
    smtp.on('ehlo', (input) => (remember(input), say(input.name)));
    smtp.on('mailFrom', (input) => (remember(input), say(input.transaction.reversePath?.address ?? '')));
    smtp.on('rcptTo', async (input) => (remember(input), say(input.address.address)));
  },
});
`;

const word = (...words: readonly string[]) => fc.constantFrom(...words);
const transaction = fc.record({
  ip: word('127.0.0.1', '127.0.0.9', '127.0.1.1'),
  ehlo: word('client.example', 'reject.example', 'defer.example', 'throw.example', 'client.example', 'client.example'),
  mail: word(
    'a@b.example',
    '',
    'reject@b.example',
    'defer@b.example',
    'accept@b.example',
    'throw@b.example',
    'a@b.example',
  ),
  rcpt: fc.array(
    word(
      'postmaster@here.example',
      'nobody@here.example',
      'x@routed.example',
      'x@elsewhere.example',
      'x%y@here.example',
      'reject@here.example',
      'defer@elsewhere.example',
      'discard@here.example',
      'hold@here.example',
      'route@here.example',
      'accept@elsewhere.example',
      'throw@here.example',
    ),
    { minLength: 1, maxLength: 4 },
  ),
});

const Answer = z.object({
  stages: z.array(
    z.object({
      stage: z.string(),
      outcome: z.string(),
      reply: z.object({ code: z.int(), status: z.string().nullable(), text: z.string() }).nullable(),
    }),
  ),
  recipients: z.array(
    z.object({
      outcome: z.string(),
      reply: z.object({ code: z.int(), status: z.string().nullable(), text: z.string() }).nullable(),
    }),
  ),
});

/** What a client is told: `250` for each yes, the reply for each no. */
async function really(
  port: number,
  { ip, ehlo, mail, rcpt }: Readonly<{ ip: string; ehlo: string; mail: string; rcpt: readonly string[] }>,
) {
  const client = await SmtpClient.connect({ port, localAddress: ip });
  try {
    await client.readReply();
    const said: string[] = [];
    for (const line of [`EHLO ${ehlo}`, `MAIL FROM:<${mail}>`, ...rcpt.map((address) => `RCPT TO:<${address}>`)]) {
      const { code, status, lines } = await client.command(line);
      said.push(code < 300 ? 'yes' : `${code} ${status ?? ''} ${lines.join(' ').replace(/^\d\.\d+\.\d+ /, '')}`);
      if (code >= 300 && !line.startsWith('RCPT')) break;
    }
    return said;
  } finally {
    client.close();
  }
}

test('an explanation agrees with what really happens, and leaves no trace', { timeout: 120_000 }, async (t) => {
  const plugins = { 'client-queue': { routes: { away: { mx: ['127.0.0.1'], port: 1, domains: ['routed.example'] } } } };
  const config = JSON.stringify({
    domains: ['here.example'],
    sitePlugins: ['./opinions'],
    smtp: { listeners: [{ mode: 'mx', port: 0 }], relayNetworks: ['127.0.0.8/29'], limits: { exemptLoopback: true } },
    plugins,
  });
  const server = await startInProcess(t, config, {}, async (folder) => {
    await mkdir(join(folder, 'opinions'));
    await writeFile(join(folder, 'opinions', 'index.js'), opinions);
  });
  const port = server.portOf('mx');
  const counted = async (): Promise<string | undefined> =>
    /^postern_opinions_asked (\d+)$/m.exec((await server.admin.request('/metrics/prometheus')).text)?.[1];

  await fc.assert(
    fc.asyncProperty(transaction, async (one) => {
      const told = await really(port, one);
      const before = await counted();
      const explained = Answer.parse(await server.admin.json('/pipeline/explain', { json: one }));
      assert.equal(await counted(), before, 'asking is no mail');
      const words = [...explained.stages.filter(({ stage }) => stage !== 'connect'), ...explained.recipients].map(
        ({ reply }) => (reply === null ? 'yes' : `${reply.code} ${reply.status ?? ''} ${reply.text}`),
      );
      assert.deepEqual(words, told);
    }),
    { numRuns: 200 },
  );
  const admin = HttpClient.admin(server.base);
  assert.match(await admin.page('/pipeline'), /opinions/);
});

test('a shadowed plugin is asked and not followed, and a reload ends that', async (t) => {
  const configOf = (shadow: readonly string[]) =>
    JSON.stringify({
      domains: ['here.example'],
      sitePlugins: ['./opinions'],
      smtp: { listeners: [{ mode: 'mx', port: 0 }], shadow },
    });
  const server = await startInProcess(t, configOf(['opinions']), {}, async (folder) => {
    await mkdir(join(folder, 'opinions'));
    await writeFile(join(folder, 'opinions', 'index.js'), opinions);
  });
  const port = server.portOf('mx');
  const one = { ip: '127.0.0.1', ehlo: 'reject.example', mail: 'reject@b.example', rcpt: ['postmaster@here.example'] };
  assert.deepEqual(await really(port, one), ['yes', 'yes', 'yes']);
  const Hooks = z.object({ hooks: z.array(z.object({ plugin: z.string(), mode: z.string(), shadowed: z.int() })) });
  const { hooks } = Hooks.parse(await server.admin.json('/pipeline'));
  const shadowed = hooks.filter(({ plugin }) => plugin === 'opinions');
  assert.deepEqual(
    shadowed.map(({ mode }) => mode),
    ['shadow', 'shadow', 'shadow'],
  );
  assert.equal(
    shadowed.reduce((sum, hook) => sum + hook.shadowed, 0),
    2,
  );
  await writeFile(join(server.folder, 'postern.json5'), configOf([]));
  await server.admin.json('/config/reload', { method: 'POST', json: {} });
  assert.match((await really(port, one))[0] ?? '', /^554 /);
});
