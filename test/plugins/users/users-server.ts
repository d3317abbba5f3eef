import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { FileSignInHistory } from '../../../core/auth/sign-in-history.js';
import { systemClock } from '../../../core/clock.js';
import type { Configuration } from '../../../core/contracts/server.js';
import type { HealthCheck } from '../../../core/contracts/health.js';
import type { PluginContext } from '../../../core/plugin.js';
import { users as plugin } from '../../../plugins/users/index.js';
import { UsersOptions } from '../../../plugins/users/options.js';
import type { UserRecord } from '../../../core/contracts/user-records.js';
import { openShell, type OpenedShell } from '../../core/http/opened-shell.js';
import { atEnd, type Ending } from '../../support/ending.js';
import { silent } from './users-site.js';

export interface UsersServer {
  readonly http: OpenedShell;
  readonly file: string;
  readonly stored: () => Promise<readonly UserRecord[]>;
  readonly health: () => ReturnType<HealthCheck>;
  readonly metrics: () => Promise<string>;
  readonly reconfigure: (options: object) => Promise<void>;
  /** As JSON; the body of the answer beside its status. */
  readonly call: (
    method: string,
    path: string,
    body?: unknown,
    as?: string,
  ) => Promise<{ status: number; body: Record<string, unknown>; headers: Headers }>;
}

export interface ServerInput {
  readonly users?: readonly UserRecord[];
  readonly options?: object;
  readonly domains?: readonly string[];
}

/** The whole plugin behind a real HTTP shell. */
export async function openServer(test: Ending, input: ServerInput = {}): Promise<UsersServer> {
  const http = await openShell();
  atEnd(test, () => http.close());
  const file = join(http.data, 'users.json');
  if (input.users !== undefined) await writeFile(file, JSON.stringify({ users: input.users }));
  const checks: HealthCheck[] = [];
  const context = contextOver(http, (check) => checks.push(check));
  const configuration: Pick<Configuration, 'data' | 'domains' | 'hostname'> = {
    data: http.data,
    domains: input.domains ?? ['example.org', 'example.net'],
    hostname: 'mx.example.org',
  };
  const signInHistory = await FileSignInHistory.open({
    folder: join(http.data, 'sign-ins'),
    clock: systemClock,
    log: silent,
  });
  atEnd(test, () => signInHistory.close());
  const options = UsersOptions.parse(input.options ?? {});
  const lent = await plugin.setup(context, { options, configuration, signInHistory });
  const { reconfigure } = lent as { reconfigure: (options: unknown) => Promise<void> };
  return {
    http,
    file,
    stored: async () => (JSON.parse(await readFile(file, 'utf8')) as { users: UserRecord[] }).users,
    health: () => checks[0]?.() ?? { status: 'down', why: 'no check was registered' },
    metrics: async () => (await http.metrics.exposition.render('prometheus')).body,
    reconfigure: async (options) => reconfigure(UsersOptions.parse(options)),
    call: async (method, path, body, as = 'boss') => {
      const answer = await http.get(path, {
        method,
        as,
        headers: { Accept: 'application/json', ...(body !== undefined && { 'Content-Type': 'application/json' }) },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const text = await answer.text();
      return {
        status: answer.status,
        headers: answer.headers,
        body: JSON.parse(text || '{}') as Record<string, unknown>,
      };
    },
  };
}

function contextOver(http: OpenedShell, checked: (check: HealthCheck) => void): PluginContext {
  const ignored = () => undefined;
  return {
    log: silent,
    clock: systemClock,
    http: {
      mount: (endpoints) => void http.shell.mount('users', endpoints),
      navigate: (link) => void http.shell.navigate('users', link),
    },
    smtp: { on: ignored, watch: ignored, tell: ignored, deliverTo: ignored },
    metrics: http.metrics.scope('users'),
    health: { check: (_, check) => checked(check) },
    every: ignored,
    folder: (name) => Promise.resolve(join(http.data, name)),
    onClose: ignored,
  };
}
