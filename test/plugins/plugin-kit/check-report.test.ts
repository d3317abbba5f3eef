import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { reportText } from '../../../plugins/plugin-kit/trial.js';
import { declarationComplaints } from '../../../core/host/declaration.js';
import { locationBelow, rootCauseText } from '../../../core/host/uncaught.js';
import { definePlugin } from '../../../core/plugin.js';
import { projectRoot } from '../../support/project.js';
import { startError } from '../../../core/problem.js';

const outline = {
  name: 'greylist',
  needs: [],
  uses: ['postern.directory'],
  provides: [],
  commands: ['greylist'],
  hooks: [{ stage: 'rcptTo', phase: 'policy', mode: 'shadow' }],
  targets: [],
  endpoints: [{ method: 'GET', path: '/greylist', access: 'read' }],
} as const;

describe('the report of a check', () => {
  test('is what the plugin adds, when nothing is wrong', () => {
    assert.equal(
      reportText('./greylist', { plugins: [outline], findings: [] }),
      [
        './greylist: no mistakes found.',
        '  greylist',
        '    uses       postern.directory',
        '    commands   postern greylist',
        '    hooks      rcptTo (policy, shadow)',
        '    endpoints  GET /greylist (read)',
      ].join('\n'),
    );
  });

  test('is each finding with its place, when something is', () => {
    const findings = [
      { severity: 'error', step: 'setup', place: 'index.js:3:7', message: 'no\nluck' },
      { severity: 'warning', step: 'pages', place: null, message: 'hm' },
    ] as const;
    assert.equal(
      reportText('./greylist', { plugins: [], findings }),
      './greylist: a mistake.\n  error    index.js:3:7  no\n           luck\n  warning  hm',
    );
  });

  test('names the innermost place in the folder of the plugin, through every wrapping', () => {
    const inner = Object.assign(new TypeError('x is not a function'), {
      stack:
        'TypeError: x is not a function\n    at f (file:///usr/lib/node.js:1:1)\n    at g (file:///site/a%20b/lib/part.js?v=2:12:9)\n    at file:///site/a%20b/index.js:3:1',
    });
    const error = startError('Plugin p could not start: x is not a function', inner);
    assert.equal(locationBelow('/site/a b', error), 'lib/part.js:12:9');
    assert.equal(locationBelow('/site/a', error), undefined);
    assert.equal(locationBelow('/site/', inner), 'a b/lib/part.js:12:9');
    assert.equal(locationBelow('/site', 'file:///site/index.js:4\nconst = 3;'), 'index.js:4');
    assert.equal(locationBelow('/site', 'at file:///site/node_modules/x/index.js:4:1'), undefined);
    assert.equal(locationBelow('/site', 3), undefined);
    assert.equal(
      locationBelow(projectRoot, `at ${join(projectRoot, 'dist', 'core', 'any.js')}:1:1`),
      undefined,
      'our own code',
    );
    assert.equal(locationBelow(projectRoot, `at ${join(projectRoot, 'index.js')}:1:1`), 'index.js:1:1');
    assert.equal(rootCauseText(error), 'TypeError: x is not a function');
    assert.equal(rootCauseText('text'), 'text');
  });

  test('is what a declaration in plain JavaScript gets wrong', () => {
    const good = definePlugin({ name: 'greylist', setup() {} });
    assert.deepEqual(declarationComplaints(good), []);
    const wrong: readonly (readonly [object, RegExp])[] = [
      [{ name: 'Grey list' }, /^name: "Grey list" is not lower-case/],
      [{ name: undefined }, /^name: undefined is not/],
      [{ options: { a: 1 } }, /^options: not a zod schema/],
      [{ setup: 3 }, /^setup: not a function/],
      [{ views: './views' }, /^views: "\.\/views" is not an absolute path/],
      [{ assets: 3 }, /^assets: 3 is not an absolute path/],
      [{ needs: { x: {} } }, /^needs\.x: not the token of a service/],
      [{ provides: { x: 'example.x' } }, /^provides\.x: not the token/],
      [{ commands: 3 }, /^commands: not a list/],
      [{ commands: [{ name: 'Two words' }] }, /^commands: "Two words" is not one lower-case word/],
      [{ commands: [{ name: 'plugin' }] }, /^commands: plugin is a command of the server itself/],
      [{ commands: [{ name: 'greylist' }] }, /^commands: greylist needs usage/],
    ];
    for (const [changed, expected] of wrong) {
      const [first = ''] = declarationComplaints({ ...good, ...changed }, new Set(['plugin']));
      assert.match(first, expected);
    }
  });
});
