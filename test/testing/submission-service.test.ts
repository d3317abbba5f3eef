import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, test } from 'node:test';
import type { SubmissionService } from '../../core/contracts/submission.js';
import {
  defer,
  definePlugin,
  directory,
  type Directory,
  next,
  parseAddress,
  reject,
  submission,
} from '../../core/plugin.js';
import { isProblem } from '../../core/problem.js';
import { drive } from '../kit/index.js';
import type { Ending } from '../support/ending.js';

/** Writes to others as a user of the directory; its hooks refuse some of that. */
async function opened(test: Ending) {
  let services: { readonly directory: Directory; readonly submission: SubmissionService } | undefined;
  const seen: string[] = [];
  const plugin = definePlugin({
    name: 'secretary',
    needs: { directory, submission },
    setup({ smtp }, given) {
      services = given;
      smtp.on('mailFrom', { signedIn: true }, ({ transaction: { session, reversePath } }) =>
        session.user?.username === reversePath?.address ? next() : reject(550, '5.7.1', 'Not your address'),
      );
      smtp.on('rcptTo', ({ address: { local } }) =>
        local === 'no' ? reject(550, '5.7.1', 'Never') : local === 'later' ? defer(450, '4.7.1', 'Later') : next(),
      );
      smtp.on('message', ({ transaction: { session }, message }) => {
        seen.push(`${session.user?.username}: ${message.headers.find(([name]) => name === 'Subject')?.[1]}`);
        return next();
      });
    },
  });
  const site = await drive(plugin, { test, users: ['anna@example.org', 'bob@example.org'] });
  assert.ok(services);
  const { directory: users, submission: outgoing } = services;
  const send = async (user: string, from: string, ...to: readonly string[]) => {
    const username = (await users.find(user))?.username;
    return outgoing.submit({
      username,
      reversePath: parseAddress(from),
      recipients: to.map((address) => parseAddress(address)),
      content: () => Readable.from([Buffer.from(`From: ${from}\r\nSubject: Hello\r\n\r\nHello\r\n`)]),
    });
  };
  return { site, seen, users, send };
}

describe('the services submission and directory of the kit', () => {
  test('send mail of a user through the hooks, to mailboxes and to other servers', async (t) => {
    const { site, seen, send } = await opened(t);
    const { recipients } = await send(
      'anna@example.org',
      'anna@example.org',
      'bob@example.org',
      'ben@elsewhere.example',
    );
    assert.deepEqual(
      recipients.map(({ address, target }) => [address.address, target]),
      [
        ['bob@example.org', 'mailbox'],
        ['ben@elsewhere.example', 'relay'],
      ],
    );
    assert.deepEqual(seen, ['anna@example.org: Hello']);
    assert.deepEqual(
      site.delivered.map(({ target, to, from }) => [target, to, from]),
      [
        ['mailbox', ['bob@example.org'], 'anna@example.org'],
        ['relay', ['ben@elsewhere.example'], 'anna@example.org'],
      ],
    );
  });

  const refusals = {
    'a sender that is not theirs': [['anna@example.org', 'bob@example.org', 'bob@example.org'], 'invalid'],
    'a recipient that a hook rejects': [
      ['anna@example.org', 'anna@example.org', 'bob@example.org', 'no@example.org'],
      'invalid',
    ],
    'a recipient that a hook defers': [['anna@example.org', 'anna@example.org', 'later@example.org'], 'unavailable'],
    'somebody unknown here': [['anna@example.org', 'anna@example.org', 'ghost@example.org'], 'invalid'],
  } as const;
  for (const [what, [[user, from, ...to], name]] of Object.entries(refusals)) {
    test(`refuse ${what}: then no recipient has the mail`, async (t) => {
      const { site, send } = await opened(t);
      await assert.rejects(send(user, from, ...to), (error) => isProblem(error) && error.problem === name);
      assert.deepEqual(site.delivered, []);
    });
  }

  test('know the users, their other addresses and their passwords', async (t) => {
    const { users } = await opened(t);
    assert.deepEqual(
      (await users.list()).map(({ username }) => username),
      ['anna@example.org', 'bob@example.org'],
    );
    assert.equal((await users.resolve(parseAddress('Anna+list@example.org')))?.username, 'anna@example.org');
    assert.equal(await users.find('ghost@example.org'), undefined);
    assert.equal((await users.authenticate('anna@example.org', 'password'))?.username, 'anna@example.org');
    assert.equal(await users.authenticate('anna@example.org', 'wrong'), undefined);
  });
});
