import assert from 'node:assert/strict';
import { mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { z } from 'zod';
import type { StoredDocument } from '../../../../core/contracts/cluster.js';
import { fileDocument } from '../../../../core/disk/document.js';
import { StsPolicies } from '../../../../plugins/client-queue/mta-sts/sts-policies.js';
import { FixedResolver } from '../../../core/dns/fixed-resolver.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { HandClock } from '../../../support/hand-clock.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { untilTrue } from '../../../support/until.js';
import { type PolicyHost, policyText, startPolicyHost } from './policy-host.js';

const domain = 'example.net';
const day = 86_400;

/** A policy that holds for ten days. */
const text = (mx: string, mode = 'enforce'): string =>
  `version: STSv1\nmode: ${mode}\nmx: ${mx}\nmax_age: ${10 * day}\n`;

/** When it is asked for, the way to let it go. */
const heldAnswer = (host: PolicyHost, policy: string) =>
  new Promise<() => void>((resolve) => {
    host.answer = (request, response) => resolve(() => policyText(policy)(request, response));
  });

async function fixture(t: TestContext, given: object = {}, stored?: StoredDocument) {
  const host = await startPolicyHost(t, domain);
  host.answer = policyText(text('mx1.example.net'));
  const record = { txt: ['v=STSv1; id=one;'] };
  const resolver = new FixedResolver({
    [`_mta-sts.${domain}`]: record,
    [`mta-sts.${domain}`]: { a: ['127.0.0.1'] },
  });
  const clock = new HandClock();
  const { log, sentences } = rememberingLog();
  const resolverSettings = { timeoutMs: 100 };
  const usual = { mtaSts: true, tls: 'opportunistic' as const, allowPrivateAddresses: true };
  const settings = { ...usual, resolver: resolverSettings, ...given };
  const file = join(await temporaryFolder(t), 'mta-sts.json');
  const results: string[] = [];
  const open = () =>
    StsPolicies.open({
      document: stored ?? fileDocument(file),
      resolver: () => resolver,
      settings: () => settings,
      fetched: (result) => results.push(result),
      clock,
      log,
      host,
    });
  return {
    host,
    clock,
    file,
    results,
    sentences,
    open,
    policies: await open(),
    questions: resolver.questions,
    /** What the DNS says of the policy from now on. */
    announce: (txt: readonly string[] | 'servfail' | 'nodata' | 'timeout') => {
      resolver.names[`_mta-sts.${domain}`] = { txt };
    },
  };
}

describe('the policy of a domain', () => {
  test('is fetched when mail goes there for the first time, and known from then on', async (t) => {
    const { policies, host, results } = await fixture(t);
    assert.equal(policies.peek(domain), undefined);
    const [one, same] = await Promise.all([policies.of(domain), policies.of(domain)]);
    assert.deepEqual([one?.mode, one?.mx, one?.id], ['enforce', ['mx1.example.net'], 'one']);
    assert.equal(same, one);
    assert.equal(await policies.of(domain), one);
    assert.equal(policies.peek(domain), one);
    assert.equal(host.asked.length, 1);
    assert.deepEqual(results, ['fetched']);
  });

  test('holds to its end though the DNS tells of none any more, or does not answer', async (t) => {
    const { policies, clock, announce } = await fixture(t);
    const known = await policies.of(domain);
    for (const said of [[], 'servfail', 'nodata'] as const) {
      announce(said);
      assert.equal(await policies.of(domain), known);
    }
    clock.advance(10 * day);
    assert.equal(await policies.of(domain), undefined);
    assert.equal(policies.peek(domain), undefined);
  });

  test('is fetched again under a new id, and the old one holds while that fails', async (t) => {
    const { policies, host, announce, sentences, clock } = await fixture(t);
    const known = await policies.of(domain);
    announce(['v=STSv1; id=two;']);
    assert.equal(await policies.of(domain), known);
    assert.equal(host.asked.length, 1, 'not within a minute');
    clock.advance(61);
    host.answer = policyText('nonsense');
    assert.equal(await policies.of(domain), known);
    assert.ok(sentences.includes('an MTA-STS policy could not be fetched'));
    host.answer = policyText(text('mx2.example.net', 'testing'));
    assert.equal(await policies.of(domain), known, 'not again within five minutes');
    clock.advance(301);
    const changed = await policies.of(domain);
    assert.deepEqual([changed?.id, changed?.mode, changed?.mx], ['two', 'testing', ['mx2.example.net']]);
  });

  test('that cannot be had is none, is not asked for again within five minutes, but when an operator wants it', async (t) => {
    const { policies, host, results } = await fixture(t);
    host.answer = policyText('nonsense');
    for (let n = 0; n < 3; n += 1) assert.equal(await policies.of(domain), undefined);
    assert.equal(host.asked.length, 1);
    host.answer = policyText(text('mx1.example.net'));
    policies.forgetFailures();
    assert.equal((await policies.of(domain))?.mode, 'enforce');
    assert.deepEqual(results, ['failed', 'fetched']);
  });

  test('is renewed once a day in the background', async (t) => {
    const { policies, host, clock } = await fixture(t);
    const known = await policies.of(domain);
    clock.advance(day + 1);
    assert.equal(await policies.of(domain), known);
    await untilTrue('another', () => policies.peek(domain) !== known);
    assert.equal(policies.peek(domain)?.fetchedAt, clock.now());
    assert.equal(host.asked.length, 2);
  });

  test('that lasts a day is renewed after half of it, so that it does not expire in use', async (t) => {
    const { policies, host, clock } = await fixture(t);
    host.answer = policyText(text('mx1.example.net').replace(String(10 * day), String(day)));
    const known = await policies.of(domain);
    clock.advance(day / 2 - 1);
    await policies.of(domain);
    clock.advance(2);
    assert.equal(await policies.of(domain), known);
    await untilTrue('another', () => policies.peek(domain) !== known);
    assert.equal(host.asked.length, 2);
  });

  test('holds however short its life is, for as long as it is announced and mail goes there', async (t) => {
    const { policies, host, clock } = await fixture(t);
    host.answer = policyText(text('mx1.example.net').replace(String(10 * day), '0'));
    for (let n = 0; n < 20; n += 1) {
      assert.equal((await policies.of(domain))?.mode, 'enforce');
      await untilTrue('what is renewed', () => clock.now() - (policies.peek(domain)?.fetchedAt ?? 0) <= 450_000);
      clock.advance(100);
    }
  });

  test('that was announced later is not overwritten by one that arrives late', async (t) => {
    const { policies, host, clock, announce, results } = await fixture(t);
    await policies.of(domain);
    clock.advance(day + 1);
    const late = heldAnswer(host, text('old.example.net'));
    await policies.of(domain);
    const answerLate = await late;
    announce(['v=STSv1; id=two;']);
    host.answer = policyText(text('new.example.net'));
    const asking = policies.of(domain);
    answerLate();
    assert.equal((await asking)?.id, 'two');
    assert.deepEqual(policies.peek(domain)?.mx, ['new.example.net']);
    assert.deepEqual(results, ['fetched', 'fetched', 'fetched']);
  });

  test('that ends while it is renewed is waited for', async (t) => {
    const { policies, host, clock } = await fixture(t);
    await policies.of(domain);
    clock.advance(10 * day - 1);
    const late = heldAnswer(host, text('mx1.example.net'));
    await policies.of(domain);
    const answerLate = await late;
    clock.advance(2);
    assert.equal(policies.peek(domain), undefined);
    const asking = policies.of(domain);
    policies.forgetFailures();
    answerLate();
    assert.equal((await asking)?.mode, 'enforce');
    assert.equal(host.asked.length, 2);
  });

  test('that cannot be renewed once holds until it can be, however short its life is', async (t) => {
    const { policies, host, clock, results } = await fixture(t);
    const short = policyText(text('mx1.example.net').replace(String(10 * day), '0'));
    host.answer = short;
    await policies.of(domain);
    host.answer = policyText('nonsense');
    clock.advance(451);
    await policies.of(domain);
    await untilTrue('a failure', () => results.length === 2);
    host.answer = short;
    clock.advance(301);
    assert.equal((await policies.of(domain))?.mode, 'enforce');
    await untilTrue('a renewal', () => results.length === 3);
    clock.advance(400);
    assert.equal((await policies.of(domain))?.mode, 'enforce');
  });

  test('is not asked for again at once where the name servers say nothing', async (t) => {
    const { policies, announce, questions, clock } = await fixture(t);
    announce('timeout');
    for (let n = 0; n < 3; n += 1) assert.equal(await policies.of(domain), undefined);
    assert.equal(questions.length, 1);
    clock.advance(16);
    await policies.of(domain);
    assert.equal(questions.length, 2);
  });

  test('keeps of what its host says only what counts', async (t) => {
    const { policies, host, file } = await fixture(t);
    host.answer = policyText(`${text('mx1.example.net')}${'# nothing\n'.repeat(5000)}`);
    await policies.of(domain);
    await policies.save();
    assert.ok((await stat(file)).size < 1000);
  });

  test('is that it has none where nothing is announced; its host is not even looked for', async (t) => {
    const { policies, announce, questions } = await fixture(t);
    announce('nodata');
    assert.equal(await policies.of(domain), undefined);
    assert.deepEqual(questions, [`TXT _mta-sts.${domain}`]);
  });

  for (const [title, given, name] of [
    ['policies are switched off', { mtaSts: false }, domain],
    ['mail goes without TLS', { tls: 'never' }, domain],
    ['the recipient is at an address', {}, '[127.0.0.1]'],
  ] as const) {
    test(`no server is asked when ${title}`, async (t) => {
      const { policies, questions } = await fixture(t, given);
      assert.equal(await policies.of(name), undefined);
      assert.deepEqual(questions, []);
    });
  }
});

describe('the file of the policies', () => {
  test('brings them over a restart, for us alone to read, without those that have ended', async (t) => {
    const { policies, open, file, announce, clock } = await fixture(t);
    const known = await policies.of(domain);
    await policies.save();
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    announce('servfail');
    const again = await open();
    assert.deepEqual(await again.of(domain), known);
    clock.advance(10 * day);
    assert.equal(await (await open()).of(domain), undefined);
  });

  test('is written when there is something new, and not else', async (t) => {
    const { policies, file } = await fixture(t);
    await policies.save();
    await assert.rejects(stat(file), { code: 'ENOENT' });
    await policies.of(domain);
    await policies.save();
    await writeFile(file, 'untouched');
    await policies.of(domain);
    await policies.save();
    assert.equal(await readFile(file, 'utf8'), 'untouched');
  });

  test('has what came last, and who saves is done when it is there', async (t) => {
    const { policies, file, host, announce, clock } = await fixture(t);
    await policies.of(domain);
    void policies.save();
    clock.advance(61);
    announce(['v=STSv1; id=two;']);
    host.answer = policyText(text('mx2.example.net'));
    await policies.of(domain);
    await Promise.all([policies.save(), policies.save()]);
    assert.match(await readFile(file, 'utf8'), /"two"/);
  });

  test('that cannot be read does not stop the start: policies are fetched again', async (t) => {
    const { open, file, sentences } = await fixture(t);
    await writeFile(file, '{ "policies": { "example.net": {');
    const policies = await open();
    assert.match(sentences.join(), /cannot be read, and are fetched anew/);
    assert.equal((await policies.of(domain))?.mode, 'enforce');
    await policies.save();
    assert.match(await readFile(file, 'utf8'), /mx1\.example\.net/);
  });

  test('is not believed what makes no sense, and nothing else is lost for it', async (t) => {
    const { policies, open, file, announce } = await fixture(t);
    await policies.of(domain);
    await policies.save();
    const stored = z
      .object({ policies: z.record(z.string(), z.looseObject({})) })
      .parse(JSON.parse(await readFile(file, 'utf8')));
    const good = stored.policies[domain];
    const bad = { 'a.example': 1, 'b.example': { ...good, mx: [] }, 'c.example': { ...good, maxAge: 1e12 } };
    const ever = { 'd.example': { ...good, fetchedAt: 1e18 } };
    await writeFile(file, JSON.stringify({ policies: { ...bad, ...ever, [domain]: good } }));
    announce('servfail');
    const again = await open();
    for (const name of Object.keys({ ...bad, ...ever })) assert.equal(again.peek(name), undefined, name);
    assert.equal((await again.of(domain))?.mode, 'enforce');
  });

  test('keeps mail that a fast clock would expire for a while, or a slow clock at the start', async (t) => {
    const { policies, open, announce, clock } = await fixture(t);
    const known = await policies.of(domain);
    announce('servfail');
    clock.advance(10 * day + 60);
    await policies.save();
    clock.advance(-11 * day);
    const again = await open();
    clock.advance(day);
    assert.deepEqual(await again.of(domain), known);
  });

  test('that cannot be written is tried again', async (t) => {
    const { policies, file, sentences, open } = await fixture(t);
    await policies.of(domain);
    await mkdir(file);
    await policies.save();
    await policies.save();
    assert.equal(sentences.filter((said) => said.includes('cannot be written down')).length, 1);
    await rm(file, { recursive: true });
    await policies.save();
    assert.equal((await open()).peek(domain)?.mode, 'enforce');
  });

  test('that another server has replaced and that cannot be read is written by a later save', async (t) => {
    let [isReadable, replacements] = [true, 0];
    const { policies, sentences } = await fixture(
      t,
      {},
      {
        place: 'mta-sts',
        read: () => {
          if (!isReadable && replacements < 5) return Promise.reject(new Error('not now'));
          return Promise.resolve(isReadable ? undefined : { text: '{ "policies": {} }', version: 7 });
        },
        replace: (_, version) => {
          replacements += 1;
          return Promise.resolve(version === 7 ? 8 : undefined);
        },
        watch: () => () => undefined,
      },
    );
    await policies.of(domain);
    isReadable = false;
    await policies.save();
    assert.equal(replacements, 1);
    assert.equal(sentences.filter((said) => said.includes('cannot be read')).length, 1);
    replacements = 5;
    await policies.save();
    assert.equal(replacements, 7, 'once more with the version that was read');
    await policies.save();
    assert.equal(replacements, 7);
  });
});
