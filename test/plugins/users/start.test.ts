import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import { isProblem, isStartError } from '../../../core/problem.js';
import { ensurePostmaster } from '../../../plugins/users/directory.js';
import { openServer } from './users-server.js';
import { isProblemNamed, openSite, user } from './users-site.js';

const namesOf = async ({ stored }: Awaited<ReturnType<typeof openServer>>) =>
  (await stored()).map(({ username }) => username);

describe('the start of the plugin', () => {
  it('creates a missing postmaster without a password', async (test) => {
    const server = await openServer(test, { domains: ['localhost'] });
    const [record, ...others] = await server.stored();
    assert.equal(others.length, 0);
    assert.equal(record?.username, 'postmaster@localhost');
    assert.equal(record?.passwordHash, null);
    const credentials = { username: 'postmaster@localhost', password: '' };
    assert.equal((await server.call('POST', '/users/authenticate', credentials)).body['authenticated'], false);
  });

  it('makes none where a user or an alias has that name, and one more when the first domain has changed', async (test) => {
    const anna = user('anna@example.org', { aliases: ['postmaster@example.org'] });
    assert.deepEqual(await namesOf(await openServer(test, { users: [anna] })), ['anna@example.org']);
    const moved = await openServer(test, { users: [anna], domains: ['example.net', 'example.org'] });
    assert.deepEqual(await namesOf(moved), ['anna@example.org', 'postmaster@example.net']);
  });

  it('makes one postmaster when several parts want one at the same moment', async (test) => {
    const { records, settings } = await openSite(test);
    const input = { settings, configuration: { domains: ['example.org'] }, clock: systemClock };
    await Promise.all([ensurePostmaster(records, input), ensurePostmaster(records, input)]);
    assert.deepEqual(
      records.list().map(({ username }) => username),
      ['postmaster@example.org'],
    );
  });

  it('keeps a user who becomes postmaster while the user is being removed', async (test) => {
    const { records, settings, directory, roster } = await openSite(test, { users: [user('anna@example.org')] });
    const removal = roster.remove('anna@example.org');
    directory.use({ ...settings, postmaster: 'anna@example.org' });
    await assert.rejects(removal, isProblemNamed('conflict'));
    assert.equal(records.count, 1);
  });

  it('sets no password when another user has taken the name meanwhile', async (test) => {
    const { records, roster } = await openSite(test, { users: [user('anna@example.org')] });
    const change = roster.change('anna@example.org', { password: 'a horse on a battery' });
    await Promise.all([roster.remove('anna@example.org'), roster.add({ username: 'anna@example.org' })]);
    await assert.rejects(change, isProblemNamed('not-found'));
    assert.equal(records.get('anna@example.org')?.passwordHash, null);
  });

  it('fails when the configured postmaster is not of this server, and the sentence names the key', async (test) => {
    await assert.rejects(
      openServer(test, { options: { postmaster: 'hostmaster@example.com' } }),
      (error) => isStartError(error) && /plugins\.users\.postmaster/.test(error.message),
    );
  });

  it('is degraded while the catch-all is no user', async (test) => {
    const server = await openServer(test, { options: { catchAll: 'anna@example.org' } });
    assert.equal(server.health().status, 'degraded');
    await server.call('POST', '/users', { username: 'anna@example.org' });
    assert.equal(server.health().status, 'up');
  });

  it('takes new options while running, but not another file', async (test) => {
    const server = await openServer(test, { users: [user('anna@example.org')] });
    await assert.rejects(server.reconfigure({ file: 'other.json' }), (error) => isProblem(error));
    await server.reconfigure({ postmaster: 'anna@example.org', attempts: { limit: 1 } });
    assert.equal((await server.call('DELETE', '/users/anna%40example.org')).status, 409);
    const attempt = () => server.call('POST', '/users/authenticate', { username: 'x', password: 'y' });
    assert.deepEqual([(await attempt()).status, (await attempt()).status], [200, 429]);
  });
});
