import { Validator } from '@seriousme/openapi-schema-validator';
import { build } from 'esbuild';
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { generate } from 'openapi-typescript-codegen';
import { deliver, lines } from '../support/delivery.js';
import { suiteEnding } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { projectRoot } from '../support/project.js';
import { adminPassword } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const suite = suiteEnding();

interface Operation {
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
  readonly responses: Readonly<Record<string, { readonly headers?: object }>>;
}
interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

describe('the OpenAPI document', () => {
  let server: InProcessServer;
  let document: Document;

  before(async () => {
    server = await startInProcess(suite);
    document = (await server.admin.json('/openapi.json')) as Document;
  });

  const statuses = (method: string, path: string): readonly string[] =>
    Object.keys(document.paths[path]?.[method]?.responses ?? {});
  const headers = (method: string, path: string): readonly string[] =>
    (document.paths[path]?.[method]?.parameters ?? []).filter((one) => one.in === 'header').map(({ name }) => name);

  test('is valid OpenAPI 3.1', async () => {
    const result = await new Validator().validate({ ...structuredClone(document) });
    assert.deepEqual(result, { valid: true });
  });

  test('names the statuses and the header fields that an operation has', () => {
    const drafts = '/store/{domain}/{user}/drafts';
    assert.ok(
      ['201', '303', '400', '401', '404', '409', '413', '415', '422'].every((status) =>
        statuses('post', drafts).includes(status),
      ),
    );
    assert.ok(!statuses('post', drafts).includes('200'));
    assert.deepEqual(headers('post', drafts), ['Idempotency-Key']);
    assert.deepEqual(headers('put', `${drafts}/{draftId}`), ['If-Match']);
    assert.ok(statuses('put', `${drafts}/{draftId}`).includes('412'));
    const part = '/store/{domain}/{user}/folders/{folder}/messages/{messageId}/parts/{part}';
    assert.deepEqual(headers('get', part), ['If-None-Match', 'Range']);
    assert.ok(['200', '206', '304', '416'].every((status) => statuses('get', part).includes(status)));
    assert.ok(statuses('post', '/client/queue').includes('202'));
    assert.ok(statuses('delete', '/system/heapdumps/{file}').includes('204'));
    assert.ok(statuses('get', '/health').includes('503'));
    const sent = (path: string) => Object.keys(document.paths[path]?.['get']?.responses['200']?.headers ?? {});
    assert.deepEqual([sent('/client/queue/list'), sent('/users'), sent('/health')], [['Link'], ['Link'], []]);
  });

  test('makes a client that compiles and works against the server', async (t) => {
    const folder = await temporaryFolder(t);
    await generate({ input: structuredClone(document), output: join(folder, 'client'), useOptions: true });
    await writeFile(join(folder, 'program.ts'), program);
    const compiler = {
      module: 'esnext',
      moduleResolution: 'bundler',
      target: 'es2022',
      strict: true,
      noEmit: true,
      types: [],
      lib: ['es2023', 'dom', 'dom.iterable'],
    };
    await writeFile(
      join(folder, 'tsconfig.json'),
      JSON.stringify({ compilerOptions: compiler, files: ['program.ts'] }),
    );
    const tsc = join(projectRoot, 'node_modules', 'typescript', 'bin', 'tsc');
    // The server runs in this process: it must go on, or it reports the stall.
    await promisify(execFile)(process.execPath, [tsc, '-p', folder]);

    await deliver(server.portOf('mx'), lines('Subject: for the client', '', 'hello'));
    const outfile = join(folder, 'program.mjs');
    await build({
      entryPoints: [join(folder, 'program.ts')],
      bundle: true,
      format: 'esm',
      platform: 'node',
      outfile,
      logLevel: 'silent',
    });
    const { run } = (await import(pathToFileURL(outfile).href)) as {
      run: (base: string, password: string) => Promise<unknown>;
    };
    assert.deepEqual(await run(server.base, adminPassword), {
      status: 'UP',
      subjects: ['for the client'],
      moved: 1,
      added: 'client@localhost',
      exists: true,
      missing: 404,
    });
  });
});

const program = `
import { ApiError, MailboxesService, OpenAPI, ServiceService, UsersService } from './client/index';

export async function run(base: string, password: string): Promise<unknown> {
  OpenAPI.BASE = base;
  OpenAPI.USERNAME = 'admin';
  OpenAPI.PASSWORD = password;
  OpenAPI.HEADERS = { Accept: 'application/json' };
  const mailbox = { domain: 'localhost', user: 'postmaster' };
  const { status } = await ServiceService.getHealthExtended({});
  const { items } = await MailboxesService.getStoreDomainUserFoldersFolder({ ...mailbox, folder: 'INBOX' });
  const messageIds = items.map(({ id }) => id);
  const requestBody = { fromFolder: 'INBOX', toFolder: 'Trash', messageIds };
  const { moved } = await MailboxesService.postStoreDomainUserMessagesMove({ ...mailbox, requestBody });
  const user = await UsersService.postUsers({ requestBody: { username: 'client@localhost' } });
  const { exists } = await UsersService.getUsersUsernameExists({ username: 'client@localhost' });
  const missing = await UsersService.getUsersUsername({ username: 'nobody@localhost' }).catch((error: unknown) => error);
  return {
    status,
    subjects: items.map(({ subject }) => subject),
    moved,
    added: user.username,
    exists,
    missing: missing instanceof ApiError ? missing.status : missing,
  };
}
`;
