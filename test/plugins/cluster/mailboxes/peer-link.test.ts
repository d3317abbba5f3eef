import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import { PeerLink } from '../../../../plugins/cluster/mailboxes/peer-link.js';
import { MemoryMessage, recipientOf, transactionOf } from '../../../core/pipeline/pipeline-fixture.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { Authority } from './owner-site.js';

const authority = new Authority();

/** What becomes of a message for a node that answers like that. */
async function handed(t: Ending, answer: (response: ServerResponse) => void) {
  const server = createServer({ ...authority.pair() }, (asked, response) => {
    response.on('error', () => undefined);
    asked.resume().on('end', () => answer(response));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const link = new PeerLink({
    tls: { ca: authority.cert, ...authority.pair() },
    addressOf: () => Promise.resolve(`localhost:${port}`),
    returned: () => undefined,
    log: rememberingLog().log,
  });
  atEnd(t, () => {
    link.close();
    server.close();
    server.closeAllConnections();
  });
  const recipient = recipientOf('ann@example.org');
  const [outcome] = await link.deliver('mx2', transactionOf([recipient]), [recipient], new MemoryMessage());
  const { recipient: _, ...rest } = outcome ?? assert.fail();
  return rest;
}

const queued = {
  outcome: 'deferred',
  code: 451,
  status: '4.4.1',
  text: 'The server of this mailbox does not answer now',
  queue: true,
};
const says = (body: unknown, status = 200) => {
  return (response: ServerResponse): void => void response.writeHead(status).end(JSON.stringify(body));
};

describe('what another node says of a message', () => {
  test('is passed on as one line of a bounded length', async (t) => {
    const text = `No\r\n250 yes${'x'.repeat(1000)}`;
    const { text: said, ...rest } = (await handed(
      t,
      says([{ outcome: 'refused', code: 550, status: '5.1.1', text }]),
    )) as { text: string };
    assert.deepEqual(rest, { outcome: 'refused', code: 550, status: '5.1.1' });
    assert.match(said, /^No\?\?250 yesx{1,300}$/);
  });

  const wrong = {
    'a fault with a path': says({ detail: "EACCES: mkdir '/srv/mail'" }, 500),
    'a refusal with the code of a deferral': says([{ outcome: 'refused', code: 451, status: '4.2.1', text: 'x' }]),
    'a status with a line end': says([{ outcome: 'refused', code: 550, status: '5.1.1\r\nX: y', text: 'x' }]),
    'a status of another class': says([{ outcome: 'deferred', code: 451, status: '5.1.1', text: 'x' }]),
    'no JSON': (response: ServerResponse): void => void response.end('OK'),
    'an answer without an end': (response: ServerResponse): void => {
      const more = (): void => {
        while (!response.destroyed && response.write(' '.repeat(65_536)));
      };
      response.on('drain', more);
      more();
    },
  };
  for (const [what, answer] of Object.entries(wrong))
    test(`counts as no answer when it is ${what}`, async (t) => {
      assert.deepEqual(await handed(t, answer), queued);
    });
});
