import { posix } from 'node:path';
import type { Rule } from './rule.js';
import type { ImportLine, SourceFile } from './source-file.js';

/** Project path of what a relative import names, or the specifier itself. */
export function target(file: SourceFile, line: ImportLine): string {
  if (!line.specifier.startsWith('.')) return line.specifier;
  return posix.join(posix.dirname(file.path), line.specifier).replace(/\.js$/, '.ts');
}

/** Faults of the imports that `wrong` picks out. */
function imports(wrong: (line: ImportLine, target: string, file: SourceFile) => boolean): Rule['faults'] {
  return (file) =>
    file.imports
      .filter((line) => wrong(line, target(file, line), file))
      .map((line) => `imports ${target(file, line)}${line.names.length > 0 ? ` (${line.names.join(', ')})` : ''}`);
}

const isIn = (path: string, folder: string) => path.startsWith(`${folder}/`);
const isShipped = (path: string) => isIn(path, 'core') || isIn(path, 'plugins') || isIn(path, 'test/kit');
const pluginOf = (path: string) => /^plugins\/([^/]+)\//.exec(path)?.[1];

/** HTTP is known to the `http/` rooms of plugins. */
const isRoutes = (path: string) => /^plugins\/(?:[^/]+\/)+(?:http\/|routes\.ts$)/.test(path);

/** Of node:net, only what touches no network. */
const pureNet = new Set(['isIP', 'isIPv4', 'isIPv6', 'BlockList', 'SocketAddress']);
const mailRoles = ['core/smtp', 'core/net', 'plugins/upstream', 'plugins/client-queue', 'test/kit'];

/** What mailparser and sanitize-html are loaded by. */
const parsers = ['mime/parse-message', 'mime/message-text', 'mime/html', 'mime/draft-content'].map(
  (name) => `plugins/store/${name}.ts`,
);

const opensSockets = ({ specifier, names, typeOnly }: ImportLine) => {
  if (typeOnly) return false;
  if (/^smtp-server\b|^nodemailer(?!\/lib\/mime-node$)\b|^(node:)?(tls|dgram)$/.test(specifier)) return true;
  return /^(node:)?net$/.test(specifier) && !(names.length > 0 && names.every((name) => pureNet.has(name)));
};

const doesIo = (line: ImportLine, path: string) =>
  opensSockets(line) ||
  /^(node:)?(fs|fs\/promises|dns|dns\/promises|http|https|http2|child_process|worker_threads|cluster|process)$/.test(
    line.specifier,
  ) ||
  (!line.typeOnly && /^core\/(disk|spool|http|smtp|pipeline|dns|contracts)\//.test(path)) ||
  (!line.typeOnly && path.startsWith('plugins/'));

export const importRules: readonly Rule[] = [
  {
    title: 'core imports no plugin, except main.ts and cli.ts the tables of what is built in',
    faults: imports(
      (_, path, file) =>
        isIn(file.path, 'core') &&
        isIn(path, 'plugins') &&
        !(file.path === 'core/main.ts' && path === 'plugins/index.ts') &&
        !(file.path === 'core/cli/cli.ts' && path === 'plugins/commands.ts'),
    ),
    breach: { path: 'core/app.ts', text: "import { users } from '../plugins/users/index.js';" },
    allowed: { path: 'core/main.ts', text: "import { builtIns } from '../plugins/index.js';" },
  },
  {
    title: 'a plugin imports core and its own files, never another plugin',
    faults: imports(
      (_, path, file) =>
        pluginOf(file.path) !== undefined && pluginOf(path) !== undefined && pluginOf(path) !== pluginOf(file.path),
    ),
    breach: { path: 'plugins/store/index.ts', text: "import { find } from '../users/users.js';" },
    allowed: { path: 'plugins/store/index.ts', text: "import { open } from './mailbox.js';" },
  },
  {
    title: 'what is shipped imports neither tests nor benchmarks nor packages for development',
    faults: imports(
      (_, path, file) =>
        isShipped(file.path) &&
        ((/^(test|bench)\//.test(path) && !isIn(path, 'test/kit')) || path.startsWith('..') || developmentOnly(path)),
    ),
    breach: { path: 'core/app.ts', text: "import { until } from '../test/support/until.js';" },
    allowed: { path: 'core/app.ts', text: "import { z } from 'zod';" },
  },
  {
    title: 'only core/http and the routes of a plugin know Koa and nunjucks',
    faults: imports(
      ({ specifier }, _, file) =>
        isShipped(file.path) &&
        /^(koa|@koa\/.*|koa-.*|nunjucks)$/.test(specifier) &&
        !isIn(file.path, 'core/http') &&
        !isRoutes(file.path),
    ),
    breach: { path: 'plugins/users/users.ts', text: "import Koa from 'koa';" },
    allowed: { path: 'core/http/shell/shell.ts', text: "import Koa from 'koa';" },
  },
  {
    title: 'only the SMTP roles, and the test kit in memory, open mail sockets',
    faults: imports(
      (line, _, file) =>
        isShipped(file.path) &&
        opensSockets(line) &&
        file.path !== 'plugins/plugin-kit/closed-network.ts' &&
        // Asks name servers: node:dns does not show the AD bit.
        file.path !== 'core/dns/validating-resolver.ts' &&
        !mailRoles.some((role) => isIn(file.path, role)),
    ),
    breach: { path: 'plugins/store/index.ts', text: "import { connect } from 'node:net';" },
    allowed: { path: 'core/auth/rate.ts', text: "import { isIP } from 'node:net';" },
  },
  {
    title: 'only the thread that parses messages loads their parsers: they are slow to load',
    faults: imports(
      ({ typeOnly }, path, file) =>
        !typeOnly &&
        isShipped(file.path) &&
        parsers.includes(path) &&
        ![...parsers, 'plugins/store/mime/parse-worker.ts'].includes(file.path),
    ),
    breach: {
      path: 'plugins/store/drafts/drafts.ts',
      text: "import { readDraft } from '../mime/draft-content.js';",
    },
    allowed: {
      path: 'plugins/store/mime/parse-worker.ts',
      text: "import { parseMessage } from './parse-message.js';",
    },
  },
  {
    title: 'only a thread and a command use mailauth, whose time has no bound',
    faults: imports(
      ({ specifier, typeOnly }, _, file) =>
        !typeOnly &&
        isShipped(file.path) &&
        /^mailauth\b/.test(specifier) &&
        ![
          'plugins/tls-reports/report-worker.ts',
          'plugins/client-queue/delivery/dkim.ts',
          'plugins/doctor/dns-checks.ts',
        ].includes(file.path),
    ),
    breach: {
      path: 'plugins/tls-reports/reader.ts',
      text: "import { dkimVerify } from 'mailauth/lib/dkim/verify.js';",
    },
    allowed: {
      path: 'plugins/tls-reports/report-worker.ts',
      text: "import { dkimVerify } from 'mailauth/lib/dkim/verify.js';",
    },
  },
  {
    title: 'only threads import what runs in threads',
    faults: imports(
      ({ typeOnly }, path, file) =>
        !typeOnly && isShipped(file.path) && /^(?!core\/watchdog\/).*-worker\.ts$/.test(path),
    ),
    breach: { path: 'plugins/tls-reports/reader.ts', text: "import './report-worker.js';" },
    allowed: { path: 'plugins/store/mime/parse-worker.ts', text: "import { parseMessage } from './parse-message.js';" },
  },
  {
    title: 'core/mime does no I/O',
    faults: imports((line, path, file) => isIn(file.path, 'core/mime') && doesIo(line, path)),
    breach: { path: 'core/mime/header.ts', text: "import { readFile } from 'node:fs/promises';" },
    allowed: { path: 'core/mime/address.ts', text: "import { problem } from '../problem.js';" },
  },
  {
    title: 'noun files of a plugin know neither the HTTP shell nor SMTP replies',
    faults: imports(
      (line, path, file) =>
        pluginOf(file.path) !== undefined &&
        !isRoutes(file.path) &&
        !file.path.endsWith('/index.ts') &&
        !line.typeOnly &&
        !['plugins/doctor', 'plugins/plugin-kit'].some((folder) => isIn(file.path, folder)) &&
        (isIn(path, 'core/http') ||
          (path === 'core/smtp/protocol/replies.ts' && line.names.some((name) => /^repl(?:y|ies)$/.test(name)))),
    ),
    breach: { path: 'plugins/users/users.ts', text: "import { respond } from '../../core/http/endpoint.js';" },
    allowed: { path: 'plugins/users/http/routes.ts', text: "import { respond } from '../../core/http/endpoint.js';" },
  },
];

function developmentOnly(specifier: string): boolean {
  return /^(tsx|typescript|oxlint|prettier|c8|fast-check|playwright-core|axe-core|node:test)(\/|$)/.test(specifier);
}
