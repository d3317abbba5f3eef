import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { stripsTypes } from '../../../plugins/plugin-kit/new-plugin.js';
import { testPlugin } from '../../../plugins/plugin-kit/test-plugin.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

test('a folder without tests is an error, not a success', async (t) => {
  const cwd = await temporaryFolder(t);
  const put = (name: string) => {
    mkdirSync(dirname(join(cwd, name)), { recursive: true });
    writeFileSync(join(cwd, name), '');
  };
  put('plain/index.js');
  put('plain/contest.js');
  put('plain/node_modules/other/index.test.js');
  await assert.rejects(
    testPlugin('plain', cwd),
    /^StartError: plain: there are no tests in it; name one index\.test\.js\.$/,
  );
  put('typed/index.test.ts');
  const typed = testPlugin('typed', cwd);
  if (stripsTypes) assert.equal(await typed, 0);
  else await assert.rejects(typed, /this Node\.js runs no TypeScript; compile its tests first/);
  await assert.rejects(testPlugin('nowhere', cwd), /nowhere: there is no folder/);
});
