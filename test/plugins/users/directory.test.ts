import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import { parseAddress } from '../../../core/mime/address.js';
import { problem } from '../../../core/problem.js';
import { UserDirectory } from '../../../plugins/users/directory.js';
import { UsersOptions } from '../../../plugins/users/options.js';
import { FileUserRecords } from '../../../plugins/users/user-records.js';
import { cheapHash } from '../../core/auth/cheap-hash.js';
import { openSite, user, type SiteInput } from './users-site.js';

const users = [
  user('anna@example.org', {
    aliases: ['info@example.org', 'anna@example.net'],
    passwordHash: cheapHash('anna-secret'),
  }),
  user('anna+lists@example.org'),
  user('postmaster@example.org'),
  user('dora@example.org', { disabled: true, passwordHash: cheapHash('dora-secret') }),
  user('gone@example.com'),
];

/** Where mail to each address goes; null for nobody. */
async function destinations(
  test: Parameters<typeof openSite>[0],
  input: SiteInput,
  expected: Record<string, string | null>,
) {
  const { directory } = await openSite(test, { users, ...input });
  for (const [address, username] of Object.entries(expected)) {
    const found = directory.resolve(parseAddress(address));
    assert.equal(found?.username ?? null, username, address);
  }
}

describe('whose mail it is', () => {
  it('is found by name and alias, in any case, in the local domains only', (test) =>
    destinations(
      test,
      {},
      {
        'anna@example.org': 'anna@example.org',
        'ANNA@Example.ORG': 'anna@example.org',
        '"anna"@example.org': 'anna@example.org',
        'Info@example.org': 'anna@example.org',
        'anna@example.net': 'anna@example.org',
        'info@example.net': null,
        'nobody@example.org': null,
        'gone@example.com': null,
        'anna@sub.example.org': null,
        'anna@[127.0.0.1]': null,
      },
    ));

  it('is found without its detail, unless a user has exactly that address', (test) =>
    destinations(
      test,
      {},
      {
        'anna+x@example.org': 'anna@example.org',
        'info+a+b@example.org': 'anna@example.org',
        'anna+@example.org': 'anna@example.org',
        'Anna+Lists@example.org': 'anna+lists@example.org',
        'anna+lists+x@example.org': 'anna@example.org',
        '+x@example.org': null,
        'anna-x@example.org': null,
      },
    ));

  it('knows another separator of details, or none', async (test) => {
    await destinations(
      test,
      { options: { plusDetail: '-' } },
      { 'anna-x@example.org': 'anna@example.org', 'anna+x@example.org': null },
    );
    await destinations(test, { options: { plusDetail: '' } }, { 'anna+x@example.org': null });
  });

  it('is the configured postmaster for postmaster of every local domain and of the host itself', async (test) => {
    const everywhere = (username: string) => ({
      'postmaster@example.org': 'postmaster@example.org',
      'Postmaster@example.net': username,
      'postmaster+abuse@example.net': username,
      'POSTMASTER@mx.example.org': username,
      'postmaster@example.com': null,
      'anna@mx.example.org': null,
    });
    await destinations(test, {}, everywhere('postmaster@example.org'));
    await destinations(test, { options: { postmaster: 'Anna@example.org' } }, everywhere('anna@example.org'));
  });

  it('is the catch-all for unknown addresses, but never for source routes', (test) =>
    destinations(
      test,
      { options: { catchAll: 'anna@example.org' } },
      {
        'nobody@example.org': 'anna@example.org',
        'nobody@example.net': 'anna@example.org',
        'postmaster@example.org': 'postmaster@example.org',
        'nobody@example.com': null,
        'a%b.example.com@example.org': null,
        'example.com!a@example.org': null,
        '"a@example.com"@example.org': null,
      },
    ));

  it('follows the options when they change', async (test) => {
    const { directory } = await openSite(test, { users });
    directory.use(UsersOptions.parse({ catchAll: 'anna@example.org' }));
    assert.equal(directory.resolve(parseAddress('nobody@example.org'))?.username, 'anna@example.org');
    directory.use(UsersOptions.parse({ catchAll: 'nobody@example.org' }));
    assert.equal(directory.missingCatchAll(), 'nobody@example.org');
  });
});

describe('the directory', () => {
  it('lends nothing of the password', async (test) => {
    const { directory } = await openSite(test, { users });
    const lent = [directory.find('anna@example.org'), ...(await directory.list())];
    assert.equal(lent.length, users.length + 1);
    assert.doesNotMatch(JSON.stringify(lent), /scrypt|passwordHash/);
    assert.equal(lent[0]?.address.address, 'anna@example.org');
  });

  it('finds a user by its name, in any case, not by an alias', async (test) => {
    const { directory } = await openSite(test, { users });
    assert.equal(directory.find('ANNA@example.org')?.username, 'anna@example.org');
    assert.equal(directory.find('anna')?.username, 'anna@example.org');
    assert.equal(directory.find('info@example.org'), undefined);
    assert.equal(directory.find('../etc'), undefined);
  });
});

describe('authentication', () => {
  it('takes the right password of an enabled user, and nothing else', async (test) => {
    const { directory } = await openSite(test, { users });
    assert.equal((await directory.authenticate('Anna@Example.org', 'anna-secret'))?.username, 'anna@example.org');
    const wrong: [string, string][] = [
      ['anna@example.org', 'anna-secreT'],
      ['anna@example.org', ''],
      ['info@example.org', 'anna-secret'],
      ['postmaster@example.org', ''],
      ['dora@example.org', 'dora-secret'],
      ['nobody@example.org', 'anna-secret'],
      ['', ''],
    ];
    for (const [username, password] of wrong) {
      assert.equal(await directory.authenticate(username, password), undefined, username);
    }
  });

  it('forgets the old password and the disabled user at once', async (test) => {
    const { directory, records } = await openSite(test, { users });
    const signIn = async (password: string) =>
      (await directory.authenticate('anna@example.org', password)) !== undefined;
    assert.equal(await signIn('anna-secret'), true);
    await records.change('anna@example.org', (record) => ({ ...record, passwordHash: cheapHash('newer-secret') }));
    assert.equal(await signIn('anna-secret'), false);
    assert.equal(await signIn('newer-secret'), true);
    await records.change('anna@example.org', (record) => ({ ...record, disabled: true }));
    assert.equal(await signIn('newer-secret'), false);
  });

  it('refuses a password that was changed while it was being checked', async () => {
    const now = { data: { users: [user('anna@example.org', { passwordHash: cheapHash('old') })] } };
    const records = new FileUserRecords({
      get data() {
        return { users: now.data.users.map((record) => ({ ...record, aliases: [] })) };
      },
      update: () => Promise.resolve(),
      watch: () => () => undefined,
      look: () => Promise.resolve(),
    });
    const directory = new UserDirectory({
      records,
      settings: UsersOptions.parse({}),
      configuration: { domains: ['example.org'], hostname: 'mx.example.org' },
      clock: systemClock,
    });
    assert.equal((await directory.authenticate('anna', 'old'))?.username, 'anna@example.org');
    directory.use(UsersOptions.parse({}));
    const signingIn = directory.authenticate('anna', 'old');
    now.data = { users: [user('anna@example.org', { passwordHash: cheapHash('new') })] };
    assert.equal(await signingIn, undefined);
  });

  it('asks for hashes that its records do not have, and needs none for who signed in a moment ago', async (test) => {
    const asked: string[] = [];
    let isThere = true;
    const { records, settings } = await openSite(test, {
      users: [user('anna@example.org', { passwordHash: cheapHash('not this one') })],
    });
    const hashes = new Map([['anna@example.org', cheapHash('anna-secret')]]);
    const directory = new UserDirectory({
      records: Object.assign(records, {
        hashOf: (username: string) => {
          asked.push(username);
          if (!isThere) return Promise.reject(problem('unavailable', 'The database is away.'));
          return Promise.resolve(hashes.get(username) ?? null);
        },
      }),
      settings,
      configuration: { domains: ['example.org'], hostname: 'mx.example.org' },
      clock: systemClock,
    });
    assert.equal(await directory.authenticate('anna', 'wrong'), undefined);
    assert.equal(await directory.authenticate('eve', 'wrong'), undefined);
    assert.equal((await directory.authenticate('anna', 'anna-secret'))?.username, 'anna@example.org');
    assert.deepEqual(asked, ['anna@example.org', 'eve@example.org', 'anna@example.org']);
    isThere = false;
    assert.equal((await directory.authenticate('anna', 'anna-secret'))?.username, 'anna@example.org');
    await assert.rejects(directory.authenticate('anna', 'wrong'), /away/);
  });
});
