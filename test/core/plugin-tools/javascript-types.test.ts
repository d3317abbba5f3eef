import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { projectRoot } from '../../support/project.js';
import { compilerComplaints } from '../../support/type-check.js';

test('in plain JavaScript right code has no complaints, and wrong code has', () => {
  const folder = join(projectRoot, 'test', 'types', 'javascript');
  assert.equal(compilerComplaints(folder, 'jsconfig.json'), '');
});
