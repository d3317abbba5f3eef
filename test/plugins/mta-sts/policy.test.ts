import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { get } from 'node:http';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { fetchPolicy } from '../../../plugins/client-queue/mta-sts/policy-fetch.js';
import { parsePolicy } from '../../../plugins/client-queue/mta-sts/policy.js';
import { FixedResolver } from '../../core/dns/fixed-resolver.js';
import { selfSigned } from '../../support/certificate.js';
import type { Ending } from '../../support/ending.js';
import { startInProcess } from '../../support/in-process-server.js';

const certificate = selfSigned('mta-sts.example.org');
const configuration = (policy: object) => ({
  hostname: 'mail.example.org',
  domains: ['example.org', 'example.net'],
  smtp: { listeners: [{ mode: 'mx', port: 0 }] },
  http: { https: { host: '127.0.0.1', port: 0, ...certificate } },
  plugins: { 'mta-sts': policy },
});

async function start(test: Ending, policy: object = {}) {
  const site = await startInProcess(test, JSON.stringify(configuration(policy)));
  const resolver = new FixedResolver({ 'mta-sts.example.org': { a: ['127.0.0.1'] } });
  const port = site.server.app.http.tlsAddress()?.port ?? 0;
  const context = { resolver, allowPrivate: true, port, ca: certificate.cert };
  const fetched = () => fetchPolicy('example.org', { ...context, signal: AbortSignal.timeout(10_000) });
  const ask = async (host: string) => {
    const address = site.server.app.http.address();
    const asked = get({ ...address, path: '/.well-known/mta-sts.txt', headers: { Host: host } });
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    return { status: response.statusCode, type: response.headers['content-type'], body: await text(response) };
  };
  return { site, fetched, ask };
}

describe('the MTA-STS policy of the local domains', () => {
  test('is fetched as other servers do, and names this server', async (t) => {
    const { fetched } = await start(t);
    assert.deepEqual(parsePolicy(await fetched()), { mode: 'testing', mx: ['mail.example.org'], maxAge: 604_800 });
  });

  test('says what the configuration says, also after a reload', async (t) => {
    const policy = { mode: 'enforce', mx: ['mx.example.org', '*.mail.example.net'], maxAge: 86_400 };
    const { fetched, site } = await start(t, policy);
    assert.deepEqual(parsePolicy(await fetched()), policy);
    await writeFile(join(site.folder, 'postern.json5'), JSON.stringify(configuration({ ...policy, mode: 'none' })));
    await site.admin.json('/config/reload', { json: {} });
    assert.equal(await fetched(), 'version: STSv1\r\nmode: none\r\nmax_age: 86400\r\n');
  });

  test('is served without a sign-in for each local domain, and under no other name', async (t) => {
    const { ask } = await start(t);
    const { status, type, body } = await ask('MTA-STS.Example.net.:8080');
    assert.deepEqual([status, type], [200, 'text/plain']);
    assert.match(body, /^version: STSv1\r\nmode: testing\r\n/);
    for (const host of ['mta-sts.example.com', 'example.org', 'mta-sts.mta-sts.example.org', 'mail.example.org']) {
      assert.equal((await ask(host)).status, 404, host);
    }
  });

  test('is refused in the configuration when other servers could not read it', async (t) => {
    for (const policy of [{ mx: ['a b.example.org'] }, { mx: ['x\r\nmode: none'] }, { maxAge: 1 }, { mode: 'on' }]) {
      await assert.rejects(start(t, policy), /plugins\.mta-sts/, JSON.stringify(policy));
    }
  });
});
