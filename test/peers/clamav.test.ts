import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { lines } from '../support/delivery.js';
import { atEnd, suiteEnding } from '../support/ending.js';
import { findPeer, skipWithout } from '../support/peers.js';
import { projectRoot } from '../support/project.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { untilTrue } from '../support/until.js';

const suite = suiteEnding();
const sign = 'POSTERN-TEST-SIGN';

/** Resolves with the socket of a clamd that knows one signature. */
async function startClamd(folder: string): Promise<string> {
  const [database, socket] = [join(folder, 'signatures'), join(folder, 'clamd.ctl')];
  await mkdir(database);
  await writeFile(join(database, 'test.ndb'), `Test.Sign:0:*:${Buffer.from(sign).toString('hex')}\n`);
  const settings = [`DatabaseDirectory ${database}`, `LocalSocket ${socket}`, 'Foreground yes', 'StreamMaxLength 1M'];
  await writeFile(join(folder, 'clamd.conf'), `${settings.join('\n')}\n`);
  const child = spawn(findPeer('clamd') ?? 'clamd', ['-c', join(folder, 'clamd.conf')], { stdio: 'ignore' });
  const ended = once(child, 'exit');
  atEnd(suite, async () => {
    child.kill();
    await ended;
  });
  await untilTrue('the socket of clamd', () => existsSync(socket));
  return socket;
}

describe('the example clamav with a real clamd', { skip: skipWithout('clamd') }, () => {
  let server: ServerProcess;

  before(async () => {
    const folder = await temporaryFolder(suite);
    const example = join(projectRoot, 'docs', 'examples', 'clamav');
    const options = { socket: await startClamd(folder) };
    const listeners = [{ mode: 'mx', port: 0 }];
    const config = {
      smtp: { listeners },
      sitePlugins: [{ from: example, required: true }],
      plugins: { clamav: options },
    };
    server = await ServerProcess.start(suite, { folder, config: JSON.stringify(config) });
  });

  const answerTo = async (...message: string[]): Promise<string> => {
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    await client.command('MAIL FROM:<anna@elsewhere.example>');
    await client.command('RCPT TO:<postmaster@localhost>');
    const { raw } = await client.data(lines(...message));
    client.close();
    return raw.trim();
  };

  test('a clean message arrives', async () => {
    assert.match(await answerTo('Subject: clean', '', 'hello'), /^250 /);
  });

  test('a virus is found in the text and in an attachment', async () => {
    const refusal = /^550 5\.7\.1 The message has a virus: Test\.Sign/;
    assert.match(await answerTo('Subject: text', '', `there is ${sign} in it`), refusal);
    const mime = ['MIME-Version: 1.0', 'Content-Type: application/zip', 'Content-Transfer-Encoding: base64'];
    assert.match(await answerTo('Subject: file', ...mime, '', Buffer.from(sign).toString('base64')), refusal);
  });

  test('a message that clamd finds too long stays with its client', async () => {
    assert.match(await answerTo('Subject: long', '', ...Array<string>(30_000).fill('x'.repeat(70))), /^451 4\.7\.1 /);
  });
});
