import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { skipWithoutRoot } from '../support/account.js';
import { selfSigned } from '../support/certificate.js';
import { lines } from '../support/delivery.js';
import { suiteEnding } from '../support/ending.js';
import { untilListed } from '../support/awaited-mail.js';
import { freePort } from '../support/free-port.js';
import { HttpClient } from '../support/http-client.js';
import { behindTrace, maildirMessages } from '../support/mailbox-reader.js';
import { skipWithout } from '../support/peers.js';
import { Postfix } from '../support/postfix.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const suite = suiteEnding();
const skip = skipWithout('postfix') || skipWithoutRoot('Postfix drops the rights of root in its own way');
const total = 100;

/** Bodies that a careless hop changes. */
const bodies: readonly (readonly string[])[] = [
  ['.', '..', '...', '.leading', 'trailing .', ''],
  ['x'.repeat(998), 'y'.repeat(4000), '.'.repeat(999)],
  ['Grüße aus Köln', '日本語', '\u{1f4ee}'],
  ['   ', '\t', 'ends with spaces   ', '', '', ''],
  [],
  ['From here a mailbox file would begin', '>From there as well'],
  Array.from({ length: 3000 }, (_, n) => `${'.'.repeat(n % 4)}${n}`),
];

const idOf = (text: string): string => /^Message-ID: (\S+)/m.exec(text)?.[1] ?? 'none';

function compose(n: number): string {
  const head = ['From: a@sender.example', `Subject: number ${n}`, `Message-ID: <${n}@sender.example>`, ''];
  return lines(...head, ...(bodies[n % bodies.length] ?? []));
}

/** Postfix adds one field of its own in front of the message. */
function behindPostfix(raw: Buffer): string {
  const text = behindTrace(raw).toString('utf8');
  const field = /^Received: from [^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*/.exec(text)?.[0];
  assert.match(field ?? '', /by relay\.example \(Postfix\)/);
  return text.slice(field?.length);
}

async function hand(postfix: Postfix, texts: readonly string[]): Promise<void> {
  const client = await SmtpClient.greeted({ port: postfix.port });
  for (const text of texts) {
    assert.equal((await client.command('MAIL FROM:<a@sender.example> BODY=8BITMIME')).code, 250);
    assert.equal((await client.command('RCPT TO:<postmaster@localhost>')).code, 250);
    assert.equal((await client.data(text)).code, 250);
  }
  client.close();
}

describe('mail that Postfix sends', { skip }, () => {
  let folder = '';
  let port = 0;
  let server: ServerProcess;
  let postfix: Postfix;

  before(async () => {
    folder = await temporaryFolder(suite);
    const { key, cert } = selfSigned();
    await writeFile(join(folder, 'key.pem'), key);
    await writeFile(join(folder, 'cert.pem'), cert);
    port = await freePort();
    server = await start(false);
    postfix = await Postfix.start(suite, port);
  });

  const start = (maintenance: boolean) =>
    ServerProcess.start(suite, {
      folder,
      config: `{
        smtp: { listeners: [{ port: 0, tls: 'starttls', key: 'key.pem', cert: 'cert.pem' }] },
        plugins: { config: { maintenance: ${maintenance} } },
      }`,
      args: ['--smtp-port', `${port}`],
    });

  test('comes over TLS and is kept byte for byte after the trace fields', async () => {
    const sent = Array.from({ length: total }, (_, n) => compose(n));
    await hand(postfix, sent);
    await untilListed(HttpClient.admin(server.http), total);
    const kept = await maildirMessages(join(folder, 'data', 'mail', 'localhost', 'postmaster'));
    const texts = new Map(kept.map((raw) => [idOf(raw.toString('utf8')), behindPostfix(raw)]));
    assert.equal(texts.size, total);
    for (const text of sent) assert.equal(texts.get(idOf(text)), text);
    for (const raw of kept) assert.match(raw.subarray(0, 600).toString('latin1'), /^\s+(?:by .* )?with ESMTPS/m);
    assert.deepEqual(await postfix.logged(/warning|error|fatal|panic|status=(?!sent)/), []);
  });

  test('waits in its queue while we are in maintenance, and comes afterwards', async () => {
    await server.kill('SIGTERM');
    server = await start(true);
    await hand(postfix, [compose(total)]);
    await postfix.untilLogged(/status=deferred.* 421 4\.3\.2 /);
    assert.equal((await untilListed(HttpClient.admin(server.http), total)).length, total);

    await server.kill('SIGTERM');
    server = await start(false);
    const listed = await untilListed(HttpClient.admin(server.http), total + 1);
    assert.equal(listed[0]?.internetMessageId, `<${total}@sender.example>`);
    assert.deepEqual(await postfix.logged(/status=bounced|warning|fatal|panic/), []);
  });
});
