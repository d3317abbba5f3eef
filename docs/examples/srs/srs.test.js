import assert from 'node:assert/strict';
import { test } from 'node:test';
import { drive } from 'postern/testing';
import { srs } from './index.js';

const options = {
  secret: 'a key that nobody knows',
  forward: { 'team@example.org': ['dora@example.net', 'emil@example.com'] },
};

/** Sends a message to `team` and resolves with the sender it is sent on with. */
async function senderOf(/** @type {import('postern/testing').DrivenSite} */ site, from = 'anna@example.com') {
  assert.equal((await site.data({ from, to: 'team@example.org' })).code, 250);
  return site.delivered.at(-1)?.from ?? 'nothing arrived';
}

/** Where a bounce to that address arrives. */
async function bounced(/** @type {import('postern/testing').DrivenSite} */ site, /** @type {string} */ to, from = '') {
  const { code } = await site.data({ from, to });
  return code === 250 ? site.delivered.at(-1)?.to[0] : code;
}

test('mail is forwarded with a sender of our own, and others of the message keep the sender', async (t) => {
  const site = await drive(srs, { test: t, options });
  assert.equal((await site.data({ to: ['Team@example.org', 'bob@example.org'] })).code, 250);
  const [local, ...relayed] = site.delivered.toSorted((a, b) => (a.target < b.target ? -1 : 1));
  assert.deepEqual([local?.target, local?.mailbox, local?.from], ['mailbox', 'bob@example.org', 'anna@example.com']);
  assert.deepEqual(
    relayed.map(({ mailbox }) => mailbox),
    ['dora@example.net', 'emil@example.com'],
  );
  for (const { from } of relayed) {
    assert.match(from, /^SRS0=[0-9a-f]{12}=[a-z2-7]{2}=example\.com=anna@example\.org$/);
  }
  assert.equal(await site.metric('srs_messages_total', { kind: 'forward' }), 1);
});

test('the message is forwarded as it came', async (t) => {
  const site = await drive(srs, { test: t, options });
  const eml = 'From: anna@example.com\r\nDKIM-Signature: v=1\r\n\r\n.\r\nümlauts \r\n';
  await site.data({ to: 'team@example.org', eml });
  assert.ok(site.delivered[0]?.eml.endsWith(eml));
});

test('a bounce goes back to the sender, with the null reverse-path', async (t) => {
  const site = await drive(srs, { test: t, options });
  const sender = await senderOf(site);
  assert.equal(await bounced(site, sender), 'anna@example.com');
  assert.equal(site.delivered.at(-1)?.from, '');
  assert.equal(await bounced(site, sender.toLowerCase()), 'anna@example.com', 'some servers change the case');
});

test('what was not rewritten here, or is no bounce, is an unknown address', async (t) => {
  const site = await drive(srs, { test: t, options, users: [] });
  const sender = await senderOf(site);
  const forged = [
    sender.replace('=anna@', '=eve@'),
    sender.replace('=example.com=', '=example.net='),
    sender.replace(/=[0-9a-f]{12}=/, '=000000000000='),
    sender.replace(/=[0-9a-f]{12}=/, '='),
    'SRS0=@example.org',
    'SRS1=000000000000=example.net==x@example.org',
  ];
  for (const one of forged) assert.equal(await bounced(site, one), 550, one);
  assert.equal(await bounced(site, sender, 'eve@example.net'), 550);
  assert.equal(await bounced(site, sender.replace('@example.org', '@other.example')), 550);

  const other = await drive(srs, { test: t, options: { ...options, secret: 'another key than that' }, users: [] });
  assert.equal(await bounced(other, sender), 550);
});

test('an address is taken back for three weeks, also where the time stamps begin anew', async (t) => {
  const site = await drive(srs, { test: t, options, users: [] });
  const sender = await senderOf(site);
  await site.clock.advance({ days: 21 });
  assert.equal(await bounced(site, sender), 'anna@example.com');
  await site.clock.advance({ days: 1 });
  assert.equal(await bounced(site, sender), 550);
  await site.clock.advance({ days: 580 });
  const later = await senderOf(site);
  await site.clock.advance({ days: 20 });
  assert.equal(await bounced(site, later), 'anna@example.com');
});

test('a sender that another forwarder has rewritten stays short, and its bounce goes to the first forwarder', async (t) => {
  const site = await drive(srs, { test: t, options });
  const first = await senderOf(site, 'SRS0=HHH=TT=example.com=anna@first.example');
  assert.match(first, /^SRS1=[0-9a-f]{12}=first\.example==HHH=TT=example\.com=anna@example\.org$/);
  assert.equal(await bounced(site, first), 'SRS0=HHH=TT=example.com=anna@first.example');
  const second = await senderOf(site, 'SRS1=GGGG=first.example==HHH=TT=example.com=anna@second.example');
  assert.equal(second, first, 'the second forwarder is left out');
});

test('unusual senders come back as they were', async (t) => {
  const site = await drive(srs, { test: t, options });
  for (const from of ['"a \\" b"@example.com', 'list+bob=example.net@example.com', 'SRS0@example.com']) {
    assert.equal(await bounced(site, await senderOf(site, from)), from);
  }
});

test('our own senders, the null one and those that would get too long are left alone', async (t) => {
  const site = await drive(srs, { test: t, options: { ...options, domain: 'srs.example.org' } });
  const long = `${'a'.repeat(230)}@example.com`;
  for (const from of ['bob@example.org', '', long]) assert.equal(await senderOf(site, from), from);
  assert.match(await senderOf(site), /@srs\.example\.org$/);
});

test('when the queue takes nothing, the client keeps the mail', async (t) => {
  const queue = { enqueue: () => Promise.reject(new Error('no space left')) };
  const site = await drive(srs, { test: t, options, services: { queue } });
  assert.equal((await site.data({ to: 'team@example.org' })).verdict, 'defer');
});
