import assert from 'node:assert/strict';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { HandClock } from '../../../support/hand-clock.js';
import { selfSigned } from '../../../support/certificate.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { Examined } from '../examined.js';

interface Material {
  readonly cert: string;
  readonly key: string;
}

/** @param hours from now */
async function certificates(t: TestContext, { cert, key }: Material, hours = 0): Promise<readonly string[]> {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, 'cert.pem'), cert);
  await writeFile(join(folder, 'key.pem'), key, { mode: 0o600 });
  const listener = `{ port: 0, tls: 'starttls', cert: 'cert.pem', key: 'key.pem' }`;
  const config = `{ hostname: 'mail.acme.org', smtp: { listeners: [${listener}] } }`;
  const clock = new HandClock(Date.now() + hours * 3_600_000);
  return (await Examined.of(t, config, { folder, clock })).of('certificates');
}

describe('what the doctor finds in certificates', () => {
  test('one that is for another name, self-signed and about to expire', async (t) => {
    const findings = await certificates(t, selfSigned('other.acme.org'));
    assert.equal(findings.length, 4);
    assert.match(findings[0] ?? '', /^problem: The certificate of the listener mx expires in 0 days, on \d{4}-/);
    assert.match(findings[1] ?? '', /^advice: .* is for other\.acme\.org, not for mail\.acme\.org/);
    assert.match(findings[2] ?? '', /^advice: .* is self-signed/);
    assert.match(findings[3] ?? '', /^ok: The key of the listener mx is hidden/);
  });

  test('one that has expired, and one of the future', async (t) => {
    const pair = selfSigned('mail.acme.org');
    const late = await certificates(t, pair, 2);
    assert.match(late[0] ?? '', /^problem: The certificate of the listener mx expired on \d{4}-.* → Renew it/);
    assert.match(late[1] ?? '', /^ok: .* is for mail\.acme\.org/);
    assert.match((await certificates(t, pair, -2))[0] ?? '', /^problem: .* is not valid yet/);
  });

  test('a key that everybody may read, one of another certificate, and what is no PEM', async (t) => {
    const folder = await temporaryFolder(t);
    const { cert, key } = selfSigned('mail.acme.org');
    const config = `{ smtp: { listeners: [{ port: 0, tls: 'starttls', cert: 'cert.pem', key: 'key.pem' }] } }`;
    const look = async () => (await Examined.of(t, config, { folder })).of('certificates');
    await writeFile(join(folder, 'cert.pem'), cert);
    await writeFile(join(folder, 'key.pem'), key);
    await chmod(join(folder, 'key.pem'), 0o644);
    assert.match((await look()).at(-1) ?? '', /^problem: Everybody on this machine may read the key .* → chmod o-rwx/);
    await writeFile(join(folder, 'key.pem'), selfSigned('mail.acme.org').key);
    assert.match((await look()).join('\n'), /^problem: .*key and cert do not belong together/);
    await writeFile(join(folder, 'cert.pem'), 'nothing');
    assert.match((await look()).join('\n'), /^problem: .*is not a PEM file/);
  });

  test('a chain in the wrong order', async (t) => {
    const [own, other] = [selfSigned('mail.acme.org'), selfSigned('other.acme.org')];
    const findings = await certificates(t, { cert: own.cert + other.cert, key: own.key });
    assert.ok(findings.every((finding) => !finding.includes('BEGIN')));
  });
});
