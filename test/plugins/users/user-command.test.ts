import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import type { OwnerAnswer, OwnerCall } from '../../../core/contracts/server.js';
import { verifyPassword } from '../../../core/auth/password.js';
import { isStartError } from '../../../core/problem.js';
import { UsersOptions } from '../../../plugins/users/options.js';
import { openUserRecords } from '../../../plugins/users/user-records.js';
import { userCommand } from '../../../plugins/users/user-command.js';
import type { Ending } from '../../support/ending.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { isProblemNamed, user } from './users-site.js';

interface Answers {
  readonly interactive?: boolean;
  readonly typed?: readonly string[];
  readonly owner?: OwnerCall;
}

/** A terminal and a data folder in which the command runs. */
async function openTerminal(test: Ending) {
  const data = await temporaryFolder(test);
  const printed: string[] = [];
  const run = (args: string, { interactive = false, typed = [], owner }: Answers = {}) => {
    const lines = [...typed];
    const ask = () => Promise.resolve(lines.shift() ?? '');
    return userCommand.run({
      args: args.split(' ').filter((word) => word !== ''),
      values: {},
      options: UsersOptions.parse({}),
      configuration: { data, domains: ['example.org'], hostname: 'mx1' },
      terminal: { interactive, print: (text) => printed.push(text), ask, askSecret: ask },
      clock: systemClock,
      owner,
    });
  };
  return { run, printed, file: join(data, 'users.json') };
}

const says = (sentence: RegExp) => (error: unknown) => isStartError(error) && sentence.test(error.message);

describe('postern user, when no server runs', () => {
  it('adds a user with the password from the standard input, and lists it', async (test) => {
    const { run, printed, file } = await openTerminal(test);
    await run('add Anna', { typed: ['a long enough secret'] });
    await run('list');
    assert.deepEqual(printed, ['anna@example.org was added.', `Data folder: ${dirname(file)}`, 'anna@example.org']);
    const record = (await openUserRecords(file)).get('anna@example.org');
    assert.equal(await verifyPassword('a long enough secret', record?.passwordHash ?? ''), true);
    assert.ok(!(await readFile(file, 'utf8')).includes('a long enough secret'));
  });

  it('adds a user without a password, and says that sign-in is impossible', async (test) => {
    const { run, printed } = await openTerminal(test);
    await run('add anna@example.org', { interactive: true, typed: [''] });
    assert.match(printed[0] ?? '', /without a password.*postern user password anna@example\.org/);
    await run('list');
    assert.equal(printed[2], 'anna@example.org  (no password)');
  });

  it('asks a person for the password twice, and changes nothing when the two differ', async (test) => {
    const { run, file } = await openTerminal(test);
    const differ = run('add anna', { interactive: true, typed: ['a long enough secret', 'a long enough secreT'] });
    await assert.rejects(differ, says(/two passwords differ/));
    assert.equal((await openUserRecords(file)).count, 0);
  });

  it('changes a password, but not to nothing', async (test) => {
    const { run, printed, file } = await openTerminal(test);
    await (await openUserRecords(file)).add(user('anna@example.org'));
    await assert.rejects(run('password anna', { typed: [''] }), says(/No password was given/));
    await assert.rejects(run('password anna', { typed: ['short'] }), isProblemNamed('invalid'));
    await assert.rejects(run('password berta', { typed: ['a long enough secret'] }), isProblemNamed('not-found'));
    await run('password anna', { typed: ['a long enough secret'] });
    assert.deepEqual(printed, ['anna@example.org has a new password.', `Data folder: ${dirname(file)}`]);
    assert.notEqual((await openUserRecords(file)).get('anna@example.org')?.passwordHash, null);
  });

  it('removes a user; a person must confirm it', async (test) => {
    const { run, file } = await openTerminal(test);
    const records = await openUserRecords(file);
    await records.add(user('anna@example.org'));
    await records.add(user('postmaster@example.org'));
    await assert.rejects(run('remove anna', { interactive: true, typed: ['no'] }), says(/Nothing was changed/));
    await run('remove anna', { interactive: true, typed: ['yes'] });
    await assert.rejects(run('remove postmaster'), isProblemNamed('conflict'));
    assert.deepEqual(
      (await openUserRecords(file)).list().map(({ username }) => username),
      ['postmaster@example.org'],
    );
  });

  it('shows its usage for anything else', async (test) => {
    const { run } = await openTerminal(test);
    for (const args of ['', 'add', 'rename anna', 'add anna secret', 'list all', 'constructor anna', 'passwd']) {
      await assert.rejects(run(args), says(/^Usage:\n {2}postern user add NAME/), args);
    }
  });
});

describe('postern user, while a server runs', () => {
  /** A server that answers what it is told and remembers what it was asked. */
  function ownerThat(...answers: readonly OwnerAnswer[]) {
    const asked: unknown[][] = [];
    const owner: OwnerCall = (...call) => {
      const answer = answers[asked.length];
      asked.push(call);
      return answer === undefined ? Promise.reject(new Error('asked too often')) : Promise.resolve(answer);
    };
    return { owner, asked };
  }
  const anna = {
    username: 'anna@example.org',
    domain: 'example.org',
    aliases: ['info@example.org'],
    quota: null,
    disabled: true,
    hasPassword: true,
    createdAt: '2026-01-02T03:04:05.000Z',
  };

  it('asks the server, and leaves the file alone', async (test) => {
    const { run, printed, file } = await openTerminal(test);
    const { owner, asked } = ownerThat(
      { status: 201, body: anna },
      { status: 200, body: anna },
      { status: 200, body: { count: 1, details: [anna] } },
      { status: 200, body: { username: anna.username, removed: true } },
    );
    const typed = ['a long enough secret'];
    await run('add anna', { owner, typed });
    await run('passwd anna@example.org', { owner, typed });
    await run('list', { owner });
    await run('remove anna@example.org', { owner });
    assert.deepEqual(asked, [
      ['POST', '/users', { username: 'anna', password: typed[0] }],
      ['PATCH', '/users/anna%40example.org', { password: typed[0] }],
      ['GET', '/users'],
      ['DELETE', '/users/anna%40example.org'],
    ]);
    assert.equal(printed[2], 'anna@example.org  (disabled; aliases: info@example.org)');
    await assert.rejects(readFile(file), { code: 'ENOENT' });
  });

  it('prints the refusal of the server', async (test) => {
    const { run } = await openTerminal(test);
    const { owner } = ownerThat(
      { status: 422, body: { title: 'Invalid content', detail: 'The password must have at least 10 characters.' } },
      { status: 500, body: 'nothing to read' },
      { status: 200, body: { users: [] } },
    );
    await assert.rejects(run('add anna', { owner, typed: ['x'] }), says(/at least 10 characters/));
    await assert.rejects(run('remove anna', { owner }), says(/status 500/));
    await assert.rejects(run('list', { owner }), says(/cannot be understood/));
  });
});
