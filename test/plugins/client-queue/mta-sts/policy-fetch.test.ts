import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { fetchPolicy, type PolicyFetchContext } from '../../../../plugins/client-queue/mta-sts/policy-fetch.js';
import { FixedResolver } from '../../../core/dns/fixed-resolver.js';
import { selfSigned } from '../../../support/certificate.js';
import { type PolicyHost, policyText, startPolicyHost } from './policy-host.js';

const domain = 'example.net';

async function fixture(t: TestContext) {
  const host = await startPolicyHost(t, domain);
  const resolver = new FixedResolver({ [`mta-sts.${domain}`]: { a: ['127.0.0.1'] } });
  const get = (more: Partial<PolicyFetchContext> = {}) => {
    const { port, ca } = host;
    return fetchPolicy(domain, { resolver, allowPrivate: true, signal: AbortSignal.timeout(5000), port, ca, ...more });
  };
  return { host, resolver, get };
}

describe('a policy host', () => {
  test('is asked by its name for the well-known file', async (t) => {
    const { host, get } = await fixture(t);
    host.answer = policyText('version: STSv1\r\n');
    assert.equal(await get(), 'version: STSv1\r\n');
    assert.deepEqual(host.asked, ['mta-sts.example.net /.well-known/mta-sts.txt']);
  });

  test('whose first address does not answer is called at the next', async (t) => {
    const { host, resolver, get } = await fixture(t);
    resolver.names[`mta-sts.${domain}`] = { a: ['127.0.0.9', '127.0.0.1'] };
    host.answer = policyText('yes');
    assert.equal(await get(), 'yes');
  });

  for (const [title, answer, why] of [
    ['sends us elsewhere', (_, to) => void to.writeHead(301, { Location: '/other' }).end(), /answers 301/],
    ['has nothing', (_, to) => void to.writeHead(404).end(), /answers 404/],
    ['sends a page', (_, to) => void to.writeHead(200, { 'Content-Type': 'text/html' }).end('x'), /no plain text/],
    ['does not say what it sends', (_, to) => void to.writeHead(200).end('x'), /no plain text/],
    [
      'breaks off',
      (_, to) => {
        to.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': 100 });
        to.write('version: STSv1\n', () => to.destroy());
      },
      /aborted|breaks off/,
    ],
    ['hangs up', (request) => void request.socket.destroy(), /socket hang up|ECONNRESET/],
    [
      'sends without end',
      (_, to) => {
        to.writeHead(200, { 'Content-Type': 'text/plain' });
        const go = (): void => {
          while (to.write('x'.repeat(10_000)));
          to.once('drain', go);
        };
        go();
      },
      /more than 65536 bytes/,
    ],
  ] as readonly (readonly [title: string, answer: PolicyHost['answer'], why: RegExp])[]) {
    test(`that ${title} has no policy`, async (t) => {
      const { host, get } = await fixture(t);
      host.answer = answer;
      await assert.rejects(get(), why);
    });
  }

  test('that says nothing is waited for no longer than we have', async (t) => {
    const { host, get } = await fixture(t);
    const timeout = new AbortController();
    host.answer = () => timeout.abort();
    await assert.rejects(get({ signal: timeout.signal }), /did not answer in time/);
    assert.equal(host.asked.length, 1);
  });

  for (const [title, framing] of [
    ['of a length that it has told', { 'Content-Length': '500' }],
    ['in pieces', { 'Transfer-Encoding': 'chunked' }],
    ['to the end of the connection', { Connection: 'close' }],
  ] as const) {
    test(`that stops in the middle of a text ${title} has none, though it looks whole`, async (t) => {
      const { host, get } = await fixture(t);
      const timeout = new AbortController();
      host.answer = (_, to) => {
        to.useChunkedEncodingByDefault = false;
        to.writeHead(200, { 'Content-Type': 'text/plain', ...framing });
        to.write('version: STSv1\nmode: enforce\nmx: a.example.net\nmax_age: 8', () =>
          setTimeout(() => timeout.abort(), 50),
        );
      };
      await assert.rejects(get({ signal: timeout.signal }), /did not answer in time|aborted|breaks off/);
    });
  }

  for (const head of ['101 x\r\nConnection: Upgrade\r\nUpgrade: x', '101 x']) {
    test(`that wants to speak something else has none: ${JSON.stringify(head)}`, async (t) => {
      const { host, get } = await fixture(t);
      host.answer = ({ socket }) => void socket.write(`HTTP/1.1 ${head}\r\n\r\n`);
      await assert.rejects(get(), /gives no answer|answers 101|socket hang up|ECONNRESET|Parse Error/);
    });
  }

  test('whose certificate is for another name, or not trusted, is not asked', async (t) => {
    const { host, resolver, get } = await fixture(t);
    host.answer = policyText('yes');
    await assert.rejects(get({ ca: selfSigned('x').cert }), { code: /SELF_SIGNED|UNABLE_TO_VERIFY/ });
    resolver.names['mta-sts.example.org'] = { a: ['127.0.0.1'] };
    const { port, ca } = host;
    const asOther = fetchPolicy('example.org', {
      resolver,
      allowPrivate: true,
      signal: AbortSignal.timeout(5000),
      port,
      ca,
    });
    await assert.rejects(asOther, { code: 'ERR_TLS_CERT_ALTNAME_INVALID' });
    assert.deepEqual(host.asked, []);
  });

  test('with private addresses alone is not called unless that is allowed, nor one without any', async (t) => {
    const { host, resolver, get } = await fixture(t);
    await assert.rejects(get({ allowPrivate: false }), /no address that may be called/);
    delete resolver.names[`mta-sts.${domain}`];
    await assert.rejects(get(), /no address that may be called/);
    assert.deepEqual(host.asked, []);
  });
});
