import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { checkConfiguration } from '../../../plugins/doctor/configuration-check.js';
import { projectRoot } from '../../support/project.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { filesIn, firstFiles } from './setup-run.js';

for (const name of ['dkim', 'dkim/example.org.ed1.pem', 'postern.service']) {
  test(`a second run of init completes one that was killed when ${name} was there`, async (t) => {
    const cwd = await temporaryFolder(t);
    const command = [join(projectRoot, 'dist', 'core', 'postern.cjs'), 'init', 'example.org'];
    const child = spawn(process.execPath, command, { cwd, stdio: 'ignore' });
    const ended = once(child, 'exit');
    while (child.exitCode === null && !existsSync(join(cwd, name))) await setImmediate();
    child.kill('SIGKILL');
    await ended;
    const again = spawnSync(process.execPath, command, { cwd, encoding: 'utf8' });
    assert.equal(again.status, 0, again.stderr);
    const files = await filesIn(cwd);
    assert.deepEqual(
      files.filter((file) => !file.endsWith('.tmp')),
      firstFiles,
    );
    assert.equal(await checkConfiguration({}, { cwd, env: {}, print: () => undefined }), 0);
  });
}
