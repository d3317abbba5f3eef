import assert from 'node:assert/strict';
import { lstat, mkdir, open, readdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { statusOf } from '../core/http/raw-exchange.js';
import { deliver, lines } from '../support/delivery.js';
import { suiteEnding } from '../support/ending.js';
import { bodyOf, HttpFixture, json } from './http-fixture.js';

interface Item {
  readonly key: string;
  readonly value: unknown;
}

const suite = suiteEnding();

describe('calls of the whole server about itself', () => {
  let fixture: HttpFixture;
  before(async () => {
    const logs = { maxSearchBytes: 16 * 1024 ** 2 };
    fixture = await HttpFixture.start(suite, { rest: { plugins: { monitoring: { logs } } } });
  });
  const dumps = () => join(fixture.server.folder, 'data', 'heapdumps');
  const post = (path: string, body = '{}') => fixture.ask('POST', path, { headers: json, body });

  test('H27 a heap dump goes nowhere but into its folder, whatever is asked for', async () => {
    const outside = join(fixture.server.folder, 'outside');
    for (const body of [`{"file":"${outside}"}`, '{"path":"../x"}', '{"dir":"/tmp"}']) {
      // What an endpoint without a body is sent is nothing that it reads.
      const answer = await post(`/system/heapdump?file=${encodeURIComponent(outside)}`, body);
      assert.ok([400, 413, 415, 422].includes(statusOf(answer)), answer.slice(0, 300));
    }
    await mkdir(outside);
    await rename(dumps(), `${dumps()}.kept`);
    await symlink(outside, dumps());
    assert.equal(statusOf(await post('/system/heapdump')), 503);
    await rm(dumps());
    await rename(`${dumps()}.kept`, dumps());
    assert.deepEqual(await readdir(outside), []);
    assert.deepEqual(await readdir(dumps()), []);
  });

  test('H27 of ten at once one is taken, it is private, and its answer is a name', async () => {
    const answers = await Promise.all(Array.from({ length: 10 }, () => post('/system/heapdump')));
    assert.deepEqual(
      answers.map(statusOf).toSorted((a, b) => a - b),
      [201, ...Array<number>(9).fill(409)],
    );
    const taken = answers.find((answer) => statusOf(answer) === 201) ?? '';
    assert.deepEqual(Object.keys(JSON.parse(bodyOf(taken)) as object), ['file', 'size', 'ms']);
    assert.ok(taken.length < 5000);
    const [file = '', ...others] = await readdir(dumps());
    assert.deepEqual(others, []);
    assert.equal((await lstat(dumps())).mode & 0o777, 0o700);
    assert.equal((await lstat(join(dumps(), file))).mode & 0o777, 0o600);
    for (const name of ['..%2f..%2fpostern.json5', 'heap.heapsnapshot', '%2fetc%2fpasswd', `${file}%00`]) {
      for (const method of ['GET', 'DELETE']) {
        assert.ok([400, 404].includes(statusOf(await fixture.ask(method, `/system/heapdumps/${name}`))), name);
      }
    }
    assert.equal(statusOf(await fixture.ask('DELETE', `/system/heapdumps/${file}`)), 204);
  });

  test('H28 the log is read from its own files, by parameters that are parameters', async () => {
    const odd = ['lines=-1', 'limit=-1', 'limit=1e9', 'file=..%2f..%2fpostern.json5', 'context=-1', 'context=51'];
    const places = ['cursor=..%2f..%2fetc%2fpasswd:0', 'cursor=x', 'at=%2fetc%2fpasswd:0', 'at=current.log:-1', 'at=:'];
    const others = ['level=loud', 'since=yesterday', 'until=1e400', 'live=maybe', `q=${'a'.repeat(3000)}`];
    for (const query of [...odd, ...places, ...others]) {
      for (const path of ['/logs', '/logs/stream']) {
        const answer = await fixture.ask('GET', `${path}?${query}`, { headers: ['Accept: application/json'] });
        assert.ok([400, 404, 406, 422].includes(statusOf(answer)), `${path}?${query}: ${statusOf(answer)}`);
        assert.doesNotMatch(answer, /root:x:|listeners:/);
      }
    }
  });

  test('H28 what is searched for is words, never a pattern', async () => {
    for (const words of ['(a%2B)%2B%24', '.*.*.*.*x', '%5b', '(%3f%3c!a)', '%5c']) {
      const answer = await fixture.ask('GET', `/logs?q=${words}`, { headers: ['Accept: application/json'] });
      assert.equal(statusOf(answer), 200);
      const { items } = JSON.parse(bodyOf(answer)) as { items: readonly { line: object }[] };
      const plain = decodeURIComponent(words).toLowerCase();
      for (const { line } of items) {
        assert.ok(JSON.stringify(line).toLowerCase().includes(JSON.stringify(plain).slice(1, -1)));
      }
    }
  });

  test('H28 a log of 10 GB is answered from its end, whatever is asked', async (t) => {
    const folder = join(fixture.server.folder, 'data', 'logs');
    const name = 'postern-2020-01-01.log';
    const size = 10 * 1024 ** 3;
    const sparse = await open(join(folder, name), 'w');
    t.after(() => rm(join(folder, name)));
    const line = JSON.stringify({
      level: 'info',
      time: '2020-01-01T00:00:00.000Z',
      msg: 'at the end of ten gigabytes',
    });
    await sparse.write(`\n${line}\n`, size);
    await sparse.close();
    const end = `cursor=${name}:${size + line.length + 2}`;
    const asked = {
      'limit=1': 1,
      [`limit=1&${end}`]: 1,
      'limit=1&q=gigabytes': 1,
      [`limit=100&${end}`]: 1,
      [`limit=1000&q=gigabytes&${end}`]: 1,
      [`limit=1&level=error&${end}`]: 0,
      [`limit=1&context=50&${end}`]: 1,
      [`at=${name}:${size + 1}&context=50`]: 1,
    };
    for (const [query, count] of Object.entries(asked)) {
      const began = performance.now();
      const answer = await fixture.ask('GET', `/logs?${query}`, { headers: ['Accept: application/json'] });
      const took = performance.now() - began;
      t.diagnostic(`${query}: ${Math.round(took)} ms`);
      assert.equal(statusOf(answer), 200);
      // Far from the minutes that all of it would take, also on a machine that does other things.
      assert.ok(took <= 5000, `${query}: ${Math.round(took)} ms`);
      const { items } = JSON.parse(bodyOf(answer)) as { items: readonly { matched: boolean }[] };
      assert.equal(items.filter(({ matched }) => matched).length, count, query);
    }
  });

  const file = () => join(fixture.server.folder, 'postern.json5');
  const largest = async (): Promise<unknown> => {
    const answer = await fixture.ask('GET', '/config', { headers: ['Accept: application/json'] });
    const { sections } = JSON.parse(bodyOf(answer)) as { sections: readonly { items: readonly Item[] }[] };
    return sections.flatMap(({ items }) => items).find(({ key }) => key === 'smtp.limits.messageBytes')?.value;
  };
  const broken: Readonly<Record<string, string>> = {
    nothing: '',
    'half a file': '{ smtp: { limits: { mess',
    'another type': '{ smtp: 3 }',
    'a list': '[]',
    'an unknown key': '{ smpt: {} }',
    'a prototype': '{ "__proto__": { smtp: 3 } }',
    '10,000 objects in each other': '{ a: '.repeat(10_000),
    '100 MB of blanks': `{}${' '.repeat(100_000_000)}`,
  };
  for (const [name, text] of Object.entries(broken)) {
    test(`H30 a reload of ${name} is 422, and everything stays as it was`, async () => {
      const before = await largest();
      assert.ok(before !== undefined);
      await writeFile(file(), text);
      const answer = await post('/config/reload');
      assert.equal(statusOf(answer), 422, answer.slice(0, 500));
      assert.ok(answer.length < 20_000);
      assert.equal(await largest(), before);
      await deliver(fixture.server.portOf('mx'), lines('Subject: all the same', '', 'x'));
    });
  }

  test('H30 of a hundred reloads at once none is half done', async () => {
    await writeFile(file(), '{ smtp: { limits: { messageBytes: 123456 } } }');
    const answers = await Promise.all(Array.from({ length: 100 }, () => post('/config/reload', '{"dryRun":true}')));
    assert.ok(answers.some((answer) => statusOf(answer) === 200));
    assert.ok(answers.every((answer) => [200, 409].includes(statusOf(answer))));
    assert.notEqual(await largest(), 123456);
  });
});
