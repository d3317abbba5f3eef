import assert from 'node:assert/strict';
import { it } from 'node:test';
import { AcmeServer } from '../support/acme-server.js';
import { HttpClient } from '../support/http-client.js';
import { ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { until } from '../support/until.js';

it('a certificate that was issued before a SIGKILL is fetched after the next start, and no second one is ordered', async (test) => {
  const authority = await AcmeServer.start(test);
  const folder = await temporaryFolder(test);
  const config = JSON.stringify({
    smtp: { listeners: [{ mode: 'mx', port: 0, tls: 'starttls' }] },
    plugins: { acme: { names: ['mail.example.org'], termsAgreed: true, directory: authority.directory } },
  });
  const first = await ServerProcess.start(test, { folder, config });
  authority.challengePorts.http = Number(new URL(first.http).port);
  authority.onIssued = () => process.kill(first.pid, 'SIGKILL');
  await HttpClient.admin(first.http).request('/acme/renew', { json: {} });
  assert.equal((await first.exit).signal, 'SIGKILL');
  assert.equal(authority.issued, 1);
  authority.onIssued = () => undefined;

  const second = await ServerProcess.start(test, { folder, config });
  const admin = HttpClient.admin(second.http);
  await admin.request('/acme/renew', { json: {} });
  await until('the certificate', async () => {
    const { state } = (await admin.json('/acme')) as { readonly state: string };
    return state === 'issued' ? true : undefined;
  });
  assert.equal(authority.issued, 1);
  assert.equal(authority.paths.filter((path) => path === '/order').length, 1);
});
