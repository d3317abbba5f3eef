import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { FileAnswers } from '../../../core/http/shell/idempotency.js';
import { problem } from '../../../core/problem.js';
import { atEnd } from '../../support/ending.js';
import { HandClock } from '../../support/hand-clock.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { openShell } from './opened-shell.js';

interface Work {
  readonly done: unknown[];
  readonly post: (body: string, key?: string, init?: RequestInit & { as?: string }) => Promise<Response>;
  readonly hold: () => () => void;
}

/** An endpoint that counts how often it did its work. */
async function openWork(t: TestContext): Promise<Work> {
  const opened = await openShell();
  atEnd(t, () => opened.close());
  const done: unknown[] = [];
  let gate: Promise<void> = Promise.resolve();
  const endpoints: readonly AnyEndpoint[] = [
    defineEndpoint({
      method: 'POST',
      path: '/work',
      summary: 'Work',
      group: 'Test',
      access: 'read',
      body: {
        kind: 'either',
        schema: z.strictObject({ word: z.string().max(10).optional() }),
        types: ['message/rfc822'],
      },
      idempotent: true,
      async handle({ body, request }) {
        await gate;
        let size = 0;
        for await (const chunk of request.stream ?? []) size += (chunk as Buffer).length;
        if (body?.word === 'refused') throw problem('conflict', 'Not now.');
        done.push(body?.word ?? size);
        return respond({
          status: 202,
          location: `/work/${done.length}`,
          etag: `t${done.length}`,
          model: { n: done.length },
        });
      },
    }),
  ];
  opened.shell.mount('work', endpoints);
  const json = { 'Content-Type': 'application/json' };
  return {
    done,
    post: (body, key, { headers, ...init } = {}) =>
      opened.get('/work', {
        as: 'reader',
        ...init,
        method: 'POST',
        body,
        headers: {
          ...(headers as object),
          ...(headers === undefined && json),
          ...(key !== undefined && { 'Idempotency-Key': key }),
        },
      }),
    hold: () => {
      let release = (): void => undefined;
      gate = new Promise((resolve) => (release = resolve));
      return () => release();
    },
  };
}

suite('Idempotency-Key', () => {
  test('the answer of work that was done is given again, and the work is not done again', async (t) => {
    const { post, done } = await openWork(t);
    const first = await post('{"word":"a"}', 'key');
    const again = await post('{"word":"a"}', 'key');
    for (const answer of [first, again]) {
      assert.equal(answer.status, 202);
      assert.equal(answer.headers.get('location'), '/work/1');
      assert.equal(answer.headers.get('etag'), '"t1"');
      assert.match(answer.headers.get('content-type') ?? '', /^application\/json/);
      assert.deepEqual(await answer.json(), { n: 1 });
    }
    assert.equal(first.headers.get('idempotency-replayed'), null);
    assert.equal(again.headers.get('idempotency-replayed'), 'true');
    assert.deepEqual(done, ['a']);
  });

  test('the same key with another payload is a mistake', async (t) => {
    const { post, done } = await openWork(t);
    await post('{"word":"a"}', 'key');
    assert.equal((await post('{"word":"b"}', 'key')).status, 422);
    assert.equal((await post('raw', 'key', { headers: { 'Content-Type': 'message/rfc822' } })).status, 422);
    assert.equal((await post('{"word":"b"}', 'other')).status, 202);
    assert.deepEqual(done, ['a', 'b']);
  });

  test('raw bodies are compared by their bytes', async (t) => {
    const { post, done } = await openWork(t);
    const headers = { 'Content-Type': 'message/rfc822' };
    assert.equal((await post('x'.repeat(90_000), 'key', { headers })).status, 202);
    const again = await post('x'.repeat(90_000), 'key', { headers });
    assert.equal(again.headers.get('idempotency-replayed'), 'true');
    assert.equal((await post(`${'x'.repeat(89_999)}y`, 'key', { headers })).status, 422);
    assert.deepEqual(done, [90_000]);
  });

  test('a key is its account’s own', async (t) => {
    const { post, done } = await openWork(t);
    await post('{"word":"a"}', 'key');
    assert.equal((await post('{"word":"b"}', 'key', { as: 'operator' })).status, 202);
    assert.deepEqual(done, ['a', 'b']);
  });

  test('while the first request is still running a second one is refused', async (t) => {
    const { post, done, hold } = await openWork(t);
    const release = hold();
    const running = post('{"word":"a"}', 'key');
    // Whichever of the two comes first works, and the other one is told to wait.
    const rival = post('{"word":"a"}', 'key');
    const second = await Promise.race([running, rival]);
    assert.equal(second.status, 409);
    assert.equal(second.headers.get('retry-after'), '1');
    release();
    const answers = await Promise.all([running, rival]);
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([202, 409]));
    assert.deepEqual(done, ['a']);
  });

  test('who was refused may use the key again, also with a better payload', async (t) => {
    const { post, done } = await openWork(t);
    assert.equal((await post('{"word":"refused"}', 'key')).status, 409);
    assert.equal((await post('{"word":"much too long for it"}', 'key')).status, 422);
    assert.equal((await post('{"word":"a"}', 'key')).status, 202);
    assert.deepEqual(done, ['a']);
  });

  test('a key that is none is refused; without a key each request is work', async (t) => {
    const { post, done } = await openWork(t);
    assert.equal((await post('{}', 'a b')).status, 400);
    assert.equal((await post('{}', 'x'.repeat(256))).status, 400);
    await post('{"word":"a"}');
    await post('{"word":"a"}');
    assert.deepEqual(done, ['a', 'a']);
  });
});

suite('kept answers', () => {
  const answer = { fingerprint: 'f', status: 201, headers: {}, body: 'x' };
  const log = pino({ level: 'silent' });

  test('they are there after a restart, for a day', async (t) => {
    const folder = join(await temporaryFolder(t), 'kept');
    const clock = new HandClock(Date.UTC(2100, 0, 1));
    const first = new FileAnswers({ folder, clock, log });
    first.load();
    const name = 'a'.repeat(64);
    await first.keep(name, answer);
    assert.deepEqual(await first.find(name), answer);
    const second = new FileAnswers({ folder, clock: { now: () => Date.now(), monotonic: () => 0 }, log });
    second.load();
    assert.deepEqual(await second.find(name), answer);
    clock.advance(24 * 3600 + 1);
    assert.equal(await first.find(name), undefined);
  });

  test('of too many the oldest go', async (t) => {
    const folder = join(await temporaryFolder(t), 'kept');
    const kept = new FileAnswers({ folder, clock: new HandClock(1), log, most: 3 });
    kept.load();
    const names = ['a', 'b', 'c', 'd'].map((digit) => digit.repeat(64));
    for (const name of names) await kept.keep(name, answer);
    assert.deepEqual(
      (await readdir(folder)).sort(),
      names.slice(1).map((name) => `${name}.json`),
    );
    assert.equal(await kept.find(names[0] ?? ''), undefined);
    assert.deepEqual(await kept.find(names[3] ?? ''), answer);
  });
});
