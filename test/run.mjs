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
  'chaos/chaos',
  'chaos/mail-chaos',
  'core/config/positions',
  'core/host/reload',
  'core/host/site-plugins-failing',
  'core/host/site-plugins-reload',
  'core/http/accounts',
  'core/http/https',
  'core/http/sessions',
  'core/mime/transfer-encoding',
  'core/spool/file-pool',
  'crash',
  'deploy',
  'e2e/acme-killed',
  'e2e/body-types',
  'e2e/bulk-selection',
  'e2e/changing-hooks',
  'e2e/commands',
  'e2e/dane',
  'e2e/disabled-sender',
  'e2e/doctor',
  'e2e/endpoints',
  'e2e/explain',
  'e2e/failed-plugin-reload',
  'e2e/few-descriptors',
  'e2e/find',
  'e2e/foreign-entries',
  'e2e/foreign-files',
  'e2e/full-disk',
  'e2e/killed',
  'e2e/large-messages',
  'e2e/metrics',
  'e2e/newcomer',
  'e2e/plugin',
  'e2e/proxy',
  'e2e/queue-damage',
  'e2e/refused-forms',
  'e2e/refused-start',
  'e2e/reload',
  'e2e/search',
  'e2e/site-plugin',
  'e2e/stop',
  'e2e/strangers-sender',
  'e2e/stray-errors',
  'e2e/testing-plugins',
  'e2e/try-it',
  'e2e/user-commands',
  'e2e/view-overrides',
  'e2e/watchdog',
  'examples',
  'floods',
  'fuzz',
  'hostile',
  'openapi',
  'peers',
  'plugins/accounts/accounts',
  'plugins/acme/acme',
  'plugins/client-queue/bad-peers',
  'plugins/client-queue/dane/delivery',
  'plugins/client-queue/hanging-lookups',
  'plugins/client-queue/job-routes',
  'plugins/client-queue/lookup-lanes',
  'plugins/client-queue/outcome-event',
  'plugins/client-queue/page-roles',
  'plugins/client-queue/postgres',
  'plugins/client-queue/queue',
  'plugins/client-queue/reload',
  'plugins/client-queue/retry-anew',
  'plugins/client-queue/tls-reports/sending',
  'plugins/client-queue/w3m',
  'plugins/cluster',
  'plugins/config/sync',
  'plugins/doctor/checks',
  'plugins/monitoring/history',
  'plugins/monitoring/logs',
  'plugins/monitoring/pages',
  'plugins/monitoring/system',
  'plugins/mta-sts/policy',
  'plugins/pipeline/plugin-options',
  'plugins/plugin-kit/javascript-types',
  'plugins/plugin-kit/new-plugin',
  'plugins/plugin-kit/trial',
  'plugins/setup/configuration-schema',
  'plugins/setup/kill',
  'plugins/setup/zone',
  'plugins/store/cache',
  'plugins/store/change-routes',
  'plugins/store/crash-point',
  'plugins/store/draft-kill',
  'plugins/store/draft-large',
  'plugins/store/draft-race',
  'plugins/store/draft-routes',
  'plugins/store/drafts',
  'plugins/store/folder-race',
  'plugins/store/kept-pages',
  'plugins/store/kill',
  'plugins/store/mailbox-removal',
  'plugins/store/message-view',
  'plugins/store/quota-delivery',
  'plugins/store/quota-race',
  'plugins/store/received-date',
  'plugins/store/store-model',
  'plugins/tls-reports/reading',
  'plugins/trace/trace.',
  'plugins/upstream/lmtp/hung-message',
  'plugins/upstream/lmtp/lmtp',
  'plugins/upstream/lmtp/waiting',
  'plugins/upstream/proxy/hosts',
  'plugins/upstream/proxy/hung-host',
  'plugins/upstream/proxy/hung-message',
  'plugins/upstream/proxy/mixed',
  'plugins/upstream/proxy/relaying',
  'plugins/users/locked-out',
  'plugins/users/sender-policy',
  'support/postgres',
  'testing/changes',
  'testing/parity',
  'testing/refusals',
  'testing/site',
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
  '--require',
  './test/one-version.cjs',
  '--test',
  // It names the failed tests once more at the end, also where the output is not a terminal.
  '--test-reporter=spec',
  `--test-concurrency=${availableParallelism()}`,
  // A file of thorough tests may take longer than one that everybody waits for.
  `--test-timeout=${files.some(isThorough) ? 600_000 : 120_000}`,
  ...files,
]);
process.exit(result.status ?? 1);
