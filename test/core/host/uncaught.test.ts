import assert from 'node:assert/strict';
import { join, sep } from 'node:path';
import { test } from 'node:test';
import { type UncaughtError, UncaughtErrors } from '../../../core/host/uncaught.js';
import { packageRoot } from '../../../core/host/installation.js';
import { registerSiteLocation } from '../../../core/host/site-files.js';

const ours = join(packageRoot, 'dist', 'core', 'http', 'server.js');
const packages = join(packageRoot, 'node_modules', 'koa', 'lib', 'application.js');
const theirs = '/srv/site/doorman/index.js';

/** An error that passed those files, the innermost first. */
function passing(...files: readonly string[]): Error {
  const error = new Error('stray');
  error.stack = ['Error: stray', ...files.map((file) => `    at run (file://${file}?postern=1:3:7)`)].join('\n');
  return error;
}

test('without site plugins an uncaught error ends the process', () => {
  const strays = new UncaughtErrors();
  assert.equal(strays.handle(passing(ours), 'unhandledRejection'), false);
  assert.equal(strays.handle(passing(), 'uncaughtException'), false);
});

test('with a site plugin the server continues, unless our own code was interrupted', () => {
  registerSiteLocation({ folder: join(theirs, '..'), entry: theirs, kit: undefined }, './doorman');
  // A plugin in the folder of the installation, as in a checkout.
  const within = `${packageRoot}examples${sep}within.js`;
  registerSiteLocation({ folder: undefined, entry: within, kit: undefined }, './within.js');
  const strays = new UncaughtErrors();
  const told: UncaughtError[] = [];
  const take = (error: unknown, origin: UncaughtError['origin'] = 'uncaughtException') => strays.handle(error, origin);
  assert.equal(take(passing(ours)), false);
  assert.equal(take(passing(theirs, ours)), false, 'we called it');
  assert.equal(take(passing(packages)), false);
  assert.equal(take(passing(ours, theirs)), true, 'it called us');
  strays.reportTo((stray) => told.push(stray));
  assert.equal(take(passing(theirs)), true);
  assert.equal(take(passing(within)), true);
  assert.equal(take(passing()), true);
  assert.equal(take('a text'), true);
  assert.equal(take(passing(ours), 'unhandledRejection'), true);
  assert.deepEqual(
    told.map(({ from }) => from),
    ['./doorman', './doorman', './within.js', undefined, undefined, undefined],
  );
});
