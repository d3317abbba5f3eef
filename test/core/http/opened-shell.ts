import { scryptSync } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { pino } from 'pino';
import { type Clock, systemClock } from '../../../core/clock.js';
import { type Accounts, openAccounts } from '../../../core/http/accounts.js';
import { HttpOptions, type HttpSettings } from '../../../core/http/options.js';
import type { OtherNodes } from '../../../core/contracts/other-nodes.js';
import { createHttpShell, type HttpShell } from '../../../core/http/shell/shell.js';
import { Metrics } from '../../../core/metrics/metrics.js';
import { demonstration } from './demonstration.js';

export const root = fileURLToPath(new URL('../../../../', import.meta.url));

export interface OpenedShell {
  readonly shell: HttpShell;
  readonly accounts: Accounts;
  readonly metrics: Metrics;
  readonly url: string;
  readonly port: number;
  readonly data: string;
  readonly items: ReturnType<typeof demonstration>['items'];
  readonly closed: ReturnType<typeof demonstration>['closed'];
  /** Lines of the audit trail. */
  readonly audit: readonly Record<string, unknown>[];
  /** Lines of the server log. */
  readonly log: readonly Record<string, unknown>[];
  get(path: string, init?: RequestInit & { readonly as?: string | null }): Promise<Response>;
  close(): Promise<void>;
}

export const passwords = { reader: 'reader-secret', operator: 'operator-secret', boss: 'boss-secret' } as const;
export type Who = keyof typeof passwords;

export const basic = (username: string, password: string): string =>
  `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;

/** Cheap to verify: what is tested here is not the hash. */
function cheapHash(password: string): string {
  const salt = Buffer.alloc(16, password);
  const hash = scryptSync(password, salt, 32, { N: 1024, r: 8, p: 1 });
  return `scrypt$1024$8$1$${salt.toString('base64url')}$${hash.toString('base64url')}`;
}

export const accounts = [
  { username: 'reader', passwordHash: cheapHash(passwords.reader), role: 'read' },
  { username: 'operator', passwordHash: cheapHash(passwords.operator), role: 'operate' },
  { username: 'boss', passwordHash: cheapHash(passwords.boss), role: 'admin' },
];

/** A shell over real HTTP with the demonstration mounted. Signs in as `boss` unless told otherwise; null signs nobody in. */
export async function openShell(
  options: {
    readonly http?: object;
    readonly clock?: Clock;
    readonly uploadLimit?: number;
    readonly otherNodes?: OtherNodes;
  } = {},
): Promise<OpenedShell> {
  const data = await mkdtemp(join(tmpdir(), 'postern-http-'));
  const settings: HttpSettings = HttpOptions.parse({ port: 0, accounts, ...options.http });
  const clock = options.clock ?? systemClock;
  const opened = await openAccounts({
    configured: settings.accounts,
    file: join(data, 'accounts.json'),
    adminPassword: undefined,
    clock,
  });
  const audit: Record<string, unknown>[] = [];
  const log: Record<string, unknown>[] = [];
  const metrics = new Metrics({ process: false });
  const shell = createHttpShell({
    settings,
    accounts: opened.accounts,
    log: pino(
      { level: 'debug' },
      { write: (line: string) => void log.push(JSON.parse(line) as Record<string, unknown>) },
    ),
    clock,
    metrics: metrics.scope('http'),
    viewsRoot: join(root, 'views'),
    publicRoot: join(root, 'public'),
    dataRoot: data,
    version: '0.0.0',
    hostname: 'mail.example.org',
    uploadLimit: options.uploadLimit ?? 100_000,
    strictViews: true,
    otherNodes: () => options.otherNodes,
    audit: {
      write: (line) => void audit.push(JSON.parse(line) as Record<string, unknown>),
      close: () => Promise.resolve(),
    },
  });
  const { endpoints, items, closed } = demonstration();
  shell.views('demo', join(root, 'test', 'fixtures', 'http'))();
  shell.mount('demo', endpoints);
  shell.navigate('demo', { title: 'Items', href: '/items', order: 10, role: 'read' });
  shell.navigate('demo', { title: 'Secret', href: '/secret', order: 20, role: 'admin' });
  await shell.listen();
  shell.compressAssets();
  const { port } = shell.address();
  const url = `http://127.0.0.1:${port}`;
  return {
    shell,
    accounts: opened.accounts,
    metrics,
    url,
    port,
    data,
    items,
    closed,
    audit,
    log,
    get: (path, { as = 'boss', headers, ...init } = {}) => {
      const sent = new Headers(headers);
      if (as !== null && !sent.has('authorization')) sent.set('authorization', basic(as, passwords[as as Who]));
      return fetch(`${url}${path}`, { redirect: 'manual', ...init, headers: sent });
    },
    close: async () => {
      await shell.close(0);
      await rm(data, { recursive: true, force: true });
    },
  };
}
