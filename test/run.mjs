/**
 * Builds, then runs the tests of dist/test. Arguments select files by a part of their path:
 *   npm test                     all but the thorough ones: under three minutes on two cores
 *   npm run test:all             those too: browser, other programs, attacks, kill points
 *   npm run test:thorough        only those
 *   npm test -- core/smtp        only those files
 *   npm run test:all -- --without browser    all but those files
 * Every process of a test runs on the node that runs this one: PATH="/folder/of/another/node:$PATH" npm test
 */
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const run = (args) => spawnSync(process.execPath, args, { stdio: 'inherit', cwd: root });

if (run(['build.mjs', '--if-stale']).status !== 0) process.exit(1);

const thorough = [
  'browser',
  'plugins/client-queue/postgres',
  'plugins/cluster',
  'plugins/doctor/checks',
  'plugins/plugin-kit/javascript-types',
  'plugins/plugin-kit/new-plugin',
  'plugins/plugin-kit/trial',
  'core/host/reload',
  'core/host/site-plugins-failing',
  'core/host/site-plugins-reload',
  'testing/parity',
  'testing/refusals',
  'testing/site',
  'chaos/chaos',
  'chaos/mail-chaos',
  'crash',
  'deploy',
  'e2e/commands',
  'e2e/disabled-sender',
  'e2e/doctor',
  'e2e/endpoints',
  'e2e/explain',
  'e2e/foreign-entries',
  'e2e/foreign-files',
  'e2e/full-disk',
  'e2e/killed',
  'e2e/large-messages',
  'e2e/plugin',
  'e2e/proxy',
  'e2e/queue-damage',
  'e2e/refused-start',
  'e2e/reload',
  'e2e/site-plugin-reload',
  'e2e/stop',
  'e2e/testing-plugins',
  'e2e/try-it',
  'e2e/user-commands',
  'e2e/watchdog',
  'examples',
  'hostile',
  'openapi/fuzz',
  'peers',
  'plugins/client-queue/hanging-lookups',
  'plugins/client-queue/lookup-lanes',
  'plugins/client-queue/postgres/awkward',
  'plugins/client-queue/queue',
  'plugins/client-queue/reload',
  'plugins/client-queue/retry-anew',
  'plugins/client-queue/w3m',
  'plugins/config/sync',
  'plugins/setup/kill',
  'plugins/upstream/lmtp/hung-message',
  'plugins/upstream/lmtp/waiting',
  'plugins/monitoring/system',
  'plugins/upstream/proxy/hung-host',
  'plugins/upstream/proxy/hung-message',
  'plugins/upstream/proxy/relaying',
  'plugins/store/crash-point',
  'plugins/store/kill',
  'plugins/store/cache',
  'plugins/store/draft-kill',
  'plugins/store/draft-large',
  'plugins/store/draft-race',
  'plugins/store/draft-routes',
  'plugins/store/drafts',
  'plugins/store/folder-race',
  'plugins/store/quota-race',
  'plugins/store/store-model',
  'plugins/users/locked-out',
  'core/mime/transfer-encoding',
  'core/spool/file-pool',
  'core/config/positions',
  'e2e/stray-errors',
  'fuzz',
  'support/postgres',
  'plugins/store/quota-delivery',
];
const isThorough = (file) => thorough.some((place) => file.startsWith(join('dist', 'test', place)));
const sets = { '--quick': (file) => !isThorough(file), '--thorough': isThorough, '--all': () => true };
const { argv } = process;
const without = argv.includes('--without') ? argv[argv.indexOf('--without') + 1] : undefined;
const wanted = argv
  .slice(2)
  .filter((argument) => !(argument in sets) && argument !== '--without' && argument !== without);
const set = process.argv.findLast((argument) => argument in sets);
const belongs = wanted.length > 0 ? () => true : sets[set ?? '--quick'];
const files = readdirSync(join(root, 'dist', 'test'), { recursive: true })
  .filter((name) => name.endsWith('.test.js'))
  .map((name) => join('dist', 'test', name))
  .filter(belongs)
  .filter((file) => without === undefined || !file.startsWith(join('dist', 'test', without)))
  .filter((file) => wanted.length === 0 || wanted.some((part) => file.includes(part)))
  .sort();
if (files.length === 0) {
  process.stderr.write(`no test file matches ${wanted.join(' ')} in ${relative(process.cwd(), join(root, 'test'))}\n`);
  process.exit(1);
}
const result = run([
  '--enable-source-maps',
  '--test',
  `--test-concurrency=${availableParallelism()}`,
  // A file of thorough tests may take longer than one that everybody waits for.
  `--test-timeout=${files.some(isThorough) ? 600_000 : 120_000}`,
  ...files,
]);
process.exit(result.status ?? 1);
