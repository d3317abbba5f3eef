import assert from 'node:assert/strict';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { connect, type TLSSocket } from 'node:tls';
import { systemClock } from '../../../core/clock.js';
import { AcmeServer } from '../../support/acme-server.js';
import type { Ending } from '../../support/ending.js';
import { type InProcessServer, startInProcess } from '../../support/in-process-server.js';
import { SmtpClient } from '../../support/smtp-client.js';
import { until } from '../../support/until.js';

const names = ['mail.example.org', 'mta-sts.example.org'];

interface State {
  readonly state: string;
  readonly error: string | null;
  readonly failures: number;
  readonly nextAttempt: string;
  readonly issued: { readonly names: string } | null;
}

async function start(test: Ending, challenge = 'http-01') {
  const authority = await AcmeServer.start(test);
  const config = {
    smtp: { listeners: [{ name: 'mx', mode: 'mx', port: 0, tls: 'starttls' }] },
    http: { https: { host: '127.0.0.1', port: 0 } },
    plugins: { acme: { names, termsAgreed: true, challenge, directory: authority.directory } },
  };
  const site = await startInProcess(test, JSON.stringify(config));
  authority.challengePorts.http = site.server.app.http.address().port;
  authority.challengePorts.https = site.server.app.http.tlsAddress()?.port ?? 0;
  return { authority, site };
}

/** Asks for a certificate, unless an attempt runs, and waits for its end. */
async function renew({ admin }: InProcessServer): Promise<State> {
  await admin.request('/acme/renew', { json: {} });
  return until('the end of the attempt', async () => {
    const state = (await admin.json('/acme')) as State;
    return state.state === 'running' ? undefined : state;
  });
}

async function httpsNames(site: InProcessServer): Promise<string | undefined> {
  const port = site.server.app.http.tlsAddress()?.port ?? 0;
  const socket = connect({ host: '127.0.0.1', port, servername: 'mail.example.org', rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  const { subjectaltname } = socket.getPeerCertificate();
  socket.destroy();
  return subjectaltname;
}

async function smtpNames(site: InProcessServer): Promise<string | undefined> {
  const client = await SmtpClient.greeted({ port: site.portOf('mx') });
  assert.equal((await client.command('STARTTLS')).code, 220);
  await client.startTls();
  const { subjectaltname } = (client.socket as TLSSocket).getPeerCertificate();
  client.close();
  return subjectaltname;
}

const healthOf = async ({ admin }: InProcessServer, component: string) => {
  const { components } = (await admin.json('/health/extended')) as {
    readonly components: Readonly<Record<string, { readonly status: string; readonly why: string | null }>>;
  };
  return components[component];
};

const wanted = names.map((name) => `DNS:${name}`).join(', ');

describe('the ACME plugin', () => {
  for (const challenge of ['http-01', 'tls-alpn-01']) {
    it(`obtains a certificate by ${challenge}, and open listeners use it`, async (test) => {
      const { authority, site } = await start(test, challenge);
      assert.notEqual(await httpsNames(site), wanted);
      assert.match((await healthOf(site, 'listener mx'))?.why ?? '', /self-signed/);
      assert.match(await site.admin.page('/acme'), />not yet</);
      const state = await renew(site);
      assert.deepEqual([state.state, state.error, state.issued?.names], ['issued', null, wanted]);
      assert.equal(await httpsNames(site), wanted);
      assert.equal(await smtpNames(site), wanted);
      assert.equal(authority.issued, 1);
      assert.match(await site.admin.page('/acme'), />issued<[^]*mta-sts\.example\.org/);
      const { mode } = await stat(join(site.folder, 'data', 'certificate.pem'));
      assert.equal(mode & 0o777, 0o600);
      assert.equal((await healthOf(site, 'listener mx'))?.status, 'up');
      assert.equal((await stat(join(site.folder, 'data', 'acme', 'state.json'))).mode & 0o777, 0o600);
    });
  }

  it('repeats a request with a fresh nonce when the authority refuses the old one', async (test) => {
    const { authority, site } = await start(test);
    authority.faults.push('badNonce', 'badNonce');
    assert.equal((await renew(site)).state, 'issued');
    assert.deepEqual(authority.faults, []);
  });

  it('waits as long as the authority asks, also when an operator is in a hurry', async (test) => {
    const { authority, site } = await start(test);
    authority.faults.push('rateLimited');
    const before = systemClock.now();
    const state = await renew(site);
    assert.deepEqual([state.state, state.failures], ['failing', 1]);
    assert.ok(Date.parse(state.nextAttempt) >= before + 7_200_000);
    assert.equal((await site.admin.request('/acme/renew', { json: {} })).status, 429);
    assert.match((await healthOf(site, 'certificate'))?.why ?? '', /rateLimited.*Next attempt: /);
  });

  it('begins a new order when the authority has ended one, and says why', async (test) => {
    const { authority, site } = await start(test);
    authority.faults.push('invalidOrder');
    const failed = await renew(site);
    assert.match(failed.error ?? '', /the order is refused/);
    assert.match(await site.admin.page('/acme'), />failing<[^]*the order is refused/);
    assert.equal((await renew(site)).state, 'issued');
  });

  it('fails when the challenge is not answered, and names the host', async (test) => {
    const { authority, site } = await start(test);
    authority.challengePorts.http = Number(new URL(authority.directory).port);
    assert.match((await renew(site)).error ?? '', /no answer for mail\.example\.org/);
    assert.equal(authority.issued, 0);
  });

  it('says that the authority is away, and keeps serving', async (test) => {
    const { authority, site } = await start(test);
    authority.stop();
    assert.match((await renew(site)).error ?? '', /does not answer/);
    assert.match((await httpsNames(site)) ?? '', /^DNS:/);
  });

  it('renews by itself when a third of the lifetime is left, and not before', async (test) => {
    const { authority, site } = await start(test);
    const { nextAttempt } = await renew(site);
    const left = systemClock.now() + authority.validMs - Date.parse(nextAttempt);
    assert.ok(left >= authority.validMs / 3 - 60_000 && left <= authority.validMs * 0.37, String(left));
  });
});
