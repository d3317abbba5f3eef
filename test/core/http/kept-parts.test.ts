import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import { defineEndpoint } from '../../../core/http/endpoint.js';
import { HttpOptions } from '../../../core/http/options.js';
import { Views } from '../../../core/http/views.js';
import { atEnd } from '../../support/ending.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { accounts, openShell } from './opened-shell.js';

async function viewsWith(t: TestContext, view: string) {
  const root = await temporaryFolder(t);
  writeFileSync(join(root, 'page.njk'), view);
  const views = new Views({ root, asset: (name) => name, clock: systemClock });
  return (model: object): string => String(views.render('page.njk', model));
}

test('a kept part is rendered once for the same keys, and anew for others', async (t) => {
  const render = await viewsWith(t, '<p>{{ n }}</p>{% keep list, role %}<b>{{ role }} {{ n }} Ü…</b>{% endkeep %}!');
  const [one, other] = [[], []];
  assert.equal(render({ list: one, role: 'read', n: 1 }), '<p>1</p><b>read 1 Ü…</b>!');
  assert.equal(render({ list: one, role: 'read', n: 2 }), '<p>2</p><b>read 1 Ü…</b>!');
  assert.equal(render({ list: one, role: 'admin', n: 3 }), '<p>3</p><b>admin 3 Ü…</b>!');
  assert.equal(render({ list: other, role: 'read', n: 4 }), '<p>4</p><b>read 4 Ü…</b>!');
  assert.equal(render({ list: one, role: 'read', n: 5 }), '<p>5</p><b>read 1 Ü…</b>!');
});

test('a part is not kept while a key is empty or undefined, nor inside another one, nor after an error', async (t) => {
  const without = await viewsWith(t, '{% keep key %}{{ n }}{% endkeep %}');
  assert.deepEqual([{ n: 1 }, { n: 2, key: '' }, { n: 3 }, { n: 4, key: 'a' }, { n: 5, key: 'a' }].map(without), [
    '1',
    '2',
    '3',
    '4',
    '4',
  ]);
  const inside = await viewsWith(t, '{% keep a %}[{% keep b %}{{ n }}{% endkeep %}]{% endkeep %}');
  assert.deepEqual(
    [
      { a: 1, b: 1, n: 1 },
      { a: 1, b: 2, n: 2 },
      { a: 2, b: 1, n: 3 },
    ].map(inside),
    ['[1]', '[1]', '[3]'],
  );
  const failing = await viewsWith(t, '{% keep a %}{{ show() }}{% endkeep %}');
  const fail = (): never => {
    throw new Error('not now');
  };
  assert.throws(() => failing({ a: 1, show: fail }), /not now/);
  assert.equal(failing({ a: 1, show: () => 'well' }), 'well');
});

test('values are escaped in a kept part, and parts in a loop keep their places', async (t) => {
  const render = await viewsWith(
    t,
    '{% for row in rows %}{{ loop.index }}{% keep row %}<i>{{ row.text }}</i>{% endkeep %}{% endfor %}',
  );
  const rows = [{ text: '<b>' }, { text: '$&' }];
  assert.equal(render({ rows }), '1<i>&lt;b&gt;</i>2<i>$&amp;</i>');
  assert.equal(render({ rows: rows.toReversed() }), '1<i>$&amp;</i>2<i>&lt;b&gt;</i>');
});

test('a kept part shows to each account what it may open, also after another role and other rules', async (t) => {
  const opened = await openShell();
  atEnd(t, () => opened.close());
  const folder = await temporaryFolder(t);
  const view = `{% extends layout %}{% block content %}{% keep 'all', page.rights %}{{ 'open' if page.may('GET', '/secret') else 'closed' }} door{% endkeep %}{% endblock %}`;
  writeFileSync(join(folder, 'page.njk'), view);
  opened.shell.views('extra', folder)();
  opened.shell.mount('extra', [
    defineEndpoint({
      method: 'GET',
      path: '/door',
      summary: 'Door',
      group: 'Extra',
      access: 'read',
      view: 'page.njk',
      handle: () => ({}),
    }),
  ]);
  const doors = async (): Promise<readonly (string | undefined)[]> => {
    const asked = (['boss', 'reader', 'operator', 'boss', 'reader'] as const).map(async (as) => {
      const answer = await opened.get('/door', { as, headers: { Accept: 'text/html' } });
      return /(\w+) door/.exec(await answer.text())?.[1];
    });
    return Promise.all(asked);
  };
  const usual = ['open', 'closed', 'closed', 'open', 'closed'];
  assert.deepEqual(await doors(), usual);
  assert.deepEqual(await doors(), usual);
  const promoted = accounts.map((one) => (one.username === 'reader' ? { ...one, role: 'admin' } : one));
  const next = await opened.accounts.prepare(HttpOptions.parse({ accounts: promoted }).accounts);
  const undo = next.commit();
  assert.deepEqual(await doors(), ['open', 'open', 'closed', 'open', 'open']);
  undo();
  assert.deepEqual(await doors(), usual);
  opened.shell.reconfigure(HttpOptions.parse({ port: 0, accounts, access: [{ match: '/secret', role: 'operate' }] }));
  assert.deepEqual(await doors(), ['open', 'closed', 'open', 'open', 'closed']);
  opened.shell.reconfigure(HttpOptions.parse({ port: 0, accounts }));
  assert.deepEqual(await doors(), usual);
});
