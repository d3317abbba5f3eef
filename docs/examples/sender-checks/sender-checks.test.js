import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { test } from 'node:test';
import { dkimSign } from 'mailauth';
import { drive, FakeDns, message } from 'postern/testing';
import { senderChecks } from './index.js';

const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const key = publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
const zone = {
  'example.com TXT': ['v=spf1 ip4:192.0.2.0/24 -all'],
  'sel._domainkey.example.com TXT': [`v=DKIM1; k=rsa; p=${key}`],
  '_dmarc.example.com TXT': ['v=DMARC1; p=reject'],
  '7.2.0.192.bl.example A': ['127.0.0.2'],
};
const stranger = { ip: '198.51.100.1', from: 'anna@example.com' };

async function signed(eml = message()) {
  const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  const signature = { signingDomain: 'example.com', selector: 'sel', privateKey: pem };
  const { signatures } = await dkimSign(eml, { ...signature, signatureData: [signature] });
  return signatures + eml;
}

/** The values of our field in the mail that has arrived last. */
function arrived(/** @type {import('postern/testing').DrivenSite} */ site) {
  const fields = site.delivered.at(-1)?.headers ?? [];
  return fields.filter(([name]) => name.toLowerCase() === 'authentication-results').map(([, value]) => value);
}

test('mail of a domain that signs and names its servers passes all checks, and says so', async (t) => {
  const site = await drive(senderChecks, { test: t, dns: zone });
  assert.equal((await site.data({ ip: '192.0.2.8', from: 'anna@example.com', eml: await signed() })).code, 250);
  const [value = '', ...more] = arrived(site);
  assert.match(value, /^mx\.example\.org; .*dkim=pass.*spf=pass.*dmarc=pass/s);
  assert.deepEqual(more, []);
  assert.equal(await site.metric('sender_checks_total', { check: 'dmarc', result: 'pass' }), 1);
});

test('a signature counts wherever the mail comes from, and not when the text was changed', async (t) => {
  const site = await drive(senderChecks, { test: t, dns: zone, options: { dmarc: 'reject' } });
  const eml = await signed();
  assert.equal((await site.data({ ...stranger, eml })).code, 250);
  assert.match(arrived(site)[0] ?? '', /dkim=pass.*spf=fail.*dmarc=pass/s);
  const forged = await site.data({ ...stranger, eml: eml.replace('Hello!', 'Send money!') });
  assert.deepEqual([forged.code, forged.status], [550, '5.7.1']);
  assert.equal(forged.text, 'example.com asks to refuse this (DMARC)');
  assert.equal(await site.metric('sender_checks_refused_total', { why: 'dmarc' }), 1);
});

test('what fails is only reported unless the option says otherwise', async (t) => {
  const site = await drive(senderChecks, { test: t, dns: zone });
  assert.equal((await site.data(stranger)).code, 250);
  assert.match(arrived(site)[0] ?? '', /spf=fail.*dmarc=fail/s);
  await site.reconfigure({ dmarc: 'reject' });
  assert.equal((await site.data(stranger)).code, 550);
  site.dns.set('_dmarc.example.com TXT', ['v=DMARC1; p=quarantine']);
  assert.equal(
    (await site.data({ ...stranger, from: 'x@other.example', eml: message({ from: 'x@other.example' }) })).code,
    250,
  );
});

test('a policy that cannot be read is no yes, and a From of two addresses has none', async (t) => {
  const dns = new FakeDns(zone).set('_dmarc.example.com TXT', 'servfail');
  const site = await drive(senderChecks, { test: t, dns, options: { dmarc: 'reject' } });
  const later = await site.data(stranger);
  assert.deepEqual([later.code, later.status], [451, '4.7.0']);
  const eml = message({ from: 'anna@example.com, eve@evil.example' });
  assert.equal((await site.data({ ...stranger, eml })).code, 550);
});

test('results that came with the mail are taken away, those of a trusted server are kept', async (t) => {
  const site = await drive(senderChecks, { test: t, dns: zone, options: { trustedResults: ['Lists.Example.net'] } });
  const kept = 'lists.example.net; dkim=pass header.d=example.com';
  const forged = [
    'mx.example.org; dmarc=pass header.from=bank.example',
    'MX.Example.ORG 1; dmarc=pass',
    '(lists.example.net;) mx.example.org; dmarc=pass',
    '"mx.example.org"; dmarc=pass',
    'unknown.example; dmarc=pass',
  ];
  const headers = { 'authentication-RESULTS': forged, 'Authentication-Results': kept };
  await site.data({ ...stranger, eml: message({ headers }) });
  const [own = '', ...others] = arrived(site);
  assert.match(own, /^mx\.example\.org; .*dmarc=fail/s);
  assert.deepEqual(others, [kept]);

  await site.data({ user: 'anna@example.org', tls: true, from: 'anna@example.org', eml: message({ headers }) });
  assert.deepEqual(arrived(site), [kept], 'users are not checked, and cannot forge either');
  await site.data({ user: 'anna@example.org', tls: true, from: 'anna@example.org' });
  assert.deepEqual(arrived(site), []);
});

test('a sender that looks like a result stays a sender', async (t) => {
  const site = await drive(senderChecks, { test: t, dns: zone });
  const from = '"; dmarc=pass header.from=bank.example; x="@evil.example';
  assert.equal(
    (await site.data({ ...stranger, from, hello: 'x.evil.example', eml: message({ from: 'eve@evil.example' }) })).code,
    250,
  );
  const [value = ''] = arrived(site);
  assert.doesNotMatch(value.replaceAll(/"(\\.|[^"\\])*"/g, ''), /dmarc=pass/);
  assert.match(value, /dmarc=none/);
});

test('a heap of signatures is refused without a look at them', async (t) => {
  const site = await drive(senderChecks, { test: t, dns: zone });
  const headers = {
    'DKIM-Signature': Array.from({ length: 11 }, () => 'v=1; a=rsa-sha256; d=example.com; s=sel; b=x'),
  };
  assert.equal((await site.data({ ...stranger, eml: message({ headers }) })).text, 'Too many DKIM signatures');
  assert.deepEqual(site.dns.questions, []);
});

test('a client on a block list is refused at RCPT, unless it signs in', async (t) => {
  const options = { blocklists: ['bl.example', 'other.example'] };
  const site = await drive(senderChecks, { test: t, dns: zone, options, users: ['bob@example.org'] });
  assert.equal((await site.mailFrom({ ip: '192.0.2.7' })).code, 250);
  const refused = await site.rcpt({ ip: '192.0.2.7' });
  assert.deepEqual([refused.code, refused.text], [550, '192.0.2.7 is listed by bl.example']);
  assert.equal((await site.rcpt({ ip: '192.0.2.7', user: 'bob@example.org', tls: true })).code, 250);
  assert.equal((await site.rcpt({ ip: '192.0.2.8' })).code, 250);
});

test('a list is asked about IPv6 by nibbles; what is no listing, and no answer, is no opinion', async (t) => {
  const nibbles = '1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2';
  const site = await drive(senderChecks, { test: t, options: { blocklists: ['bl.example'] } });
  site.dns.set(`${nibbles}.bl.example A`, ['127.0.0.4']).set('1.2.0.192.bl.example A', ['203.0.113.1']);
  site.dns.set('2.2.0.192.bl.example A', ['127.255.255.254']).set('3.2.0.192.bl.example A', 'servfail');
  assert.equal((await site.rcpt({ ip: '2001:db8::1' })).code, 550);
  for (const ip of ['192.0.2.1', '192.0.2.2', '192.0.2.3']) assert.equal((await site.rcpt({ ip })).code, 250, ip);
  assert.ok(site.dns.questions.includes('3.2.0.192.bl.example A'));
});

test('a list that is silent holds nobody up for longer than the DNS may take', async (t) => {
  const question = '1.2.0.192.bl.example A';
  const dns = new FakeDns({ [question]: FakeDns.slow(['127.0.0.2'], { seconds: 60 }) });
  const site = await drive(senderChecks, { test: t, dns, options: { blocklists: ['bl.example'] } });
  const answer = site.rcpt({ ip: '192.0.2.1' });
  await dns.asked(question);
  await site.clock.advance({ seconds: 6 });
  assert.equal((await answer).code, 250);
});
