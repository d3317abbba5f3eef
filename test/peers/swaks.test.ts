import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { selfSigned } from '../support/certificate.js';
import { suiteEnding } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { findPeer, skipWithout } from '../support/peers.js';
import { runPostern, ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const suite = suiteEnding();
const password = 'lower the drawbridge';

interface Sending {
  readonly port: number;
  readonly subject: string;
  readonly options: readonly string[];
}

interface Ended {
  /** Its exit status; 0 when the message was taken. */
  readonly code: number;
  readonly transcript: string;
}

async function swaks({ port, subject, options }: Sending): Promise<Ended> {
  const session = ['--server', `127.0.0.1:${port}`, '--from', 'anna@localhost', '--to', 'postmaster@localhost'];
  const content = ['--header', `Subject: ${subject}`, '--body', 'one\n.two\n'];
  try {
    const { stdout } = await promisify(execFile)(findPeer('swaks') ?? 'swaks', [...session, ...content, ...options]);
    return { code: 0, transcript: stdout };
  } catch (error) {
    const { code, stdout, stderr } = error as {
      readonly code: number;
      readonly stdout: string;
      readonly stderr: string;
    };
    return { code, transcript: `${stdout}${stderr}` };
  }
}

describe('mail that swaks sends', { skip: skipWithout('swaks') }, () => {
  let admin: HttpClient;
  const ports: Record<string, number> = {};

  before(async () => {
    const folder = await temporaryFolder(suite);
    const { key, cert } = selfSigned();
    await writeFile(join(folder, 'key.pem'), key);
    await writeFile(join(folder, 'cert.pem'), cert);
    await mkdir(join(folder, 'data'), { mode: 0o700 });
    const added = await runPostern(['user', 'add', 'anna@localhost'], { cwd: folder, input: `${password}\n` });
    assert.equal(added.code, 0, added.stderr);
    const files = `port: 0, key: 'key.pem', cert: 'cert.pem'`;
    const server = await ServerProcess.start(suite, {
      folder,
      config: `{ smtp: { listeners: [
        { name: 'mx', tls: 'starttls', ${files} },
        { name: 'submission', mode: 'submission', tls: 'starttls', ${files} },
        { name: 'submissions', mode: 'submission', tls: 'implicit', ${files} },
      ] } }`,
    });
    admin = HttpClient.admin(server.http);
    for (const name of ['mx', 'submission', 'submissions']) ports[name] = await server.portOf(name);
  });

  const auth = (mechanism: string, secret = password) =>
    ['--auth', mechanism, '--auth-user', 'anna@localhost'].concat('--auth-password', secret);
  const taken: readonly (readonly [listener: string, how: string, options: readonly string[]])[] = [
    ['mx', 'in the clear', []],
    ['mx', 'after STARTTLS', ['--tls']],
    ['submission', 'after STARTTLS and AUTH PLAIN', ['--tls', ...auth('PLAIN')]],
    ['submission', 'after STARTTLS and AUTH LOGIN', ['--tls', ...auth('LOGIN')]],
    ['submissions', 'by TLS from the start and AUTH PLAIN', ['--tls-on-connect', ...auth('PLAIN')]],
  ];
  for (const [listener, how, options] of taken) {
    test(`to ${listener} ${how} is taken and listed`, async () => {
      const subject = `${listener} ${how}`;
      const { code, transcript } = await swaks({ port: ports[listener] ?? 0, subject, options });
      assert.equal(code, 0, transcript);
      assert.ok((await listMessages(admin)).some((message) => message.subject === subject));
    });
  }

  const refused: readonly (readonly [how: string, options: readonly string[], reply: RegExp])[] = [
    ['without AUTH', ['--tls'], /<~\* 530 5\.7\.0/],
    ['with a wrong password', ['--tls', ...auth('PLAIN', 'raise it')], /<~\* 535 5\.7\.8/],
    ['with AUTH before TLS', auth('PLAIN'), /Host did not advertise authentication/],
  ];
  for (const [how, options, reply] of refused) {
    test(`to submission ${how} is refused`, async () => {
      const { code, transcript } = await swaks({ port: ports['submission'] ?? 0, subject: how, options });
      assert.notEqual(code, 0, transcript);
      assert.match(transcript, reply);
      assert.ok((await listMessages(admin)).every((message) => message.subject !== how));
    });
  }
});
