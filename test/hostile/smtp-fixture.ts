import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { selfSigned } from '../support/certificate.js';
import type { Ending } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { SmtpClient, type ReceivedReply } from '../support/smtp-client.js';

/** A line, and what the answer to it must look like. */
export type Step = readonly [line: string, expected: RegExp];

export type ListenerName = 'mx' | 'submission' | 'lmtp' | 'tls';

export const password = 'rye bread and cheese';
export const header = 'From: a@sender.example\r\nSubject: hostile\r\n\r\n';

/** The whole server with one listener of each kind, for clients that mean harm. */
export class SmtpFixture {
  readonly server: InProcessServer;
  /** Message files never change, so each is read once. */
  readonly #read = new Map<string, string>();

  private constructor(server: InProcessServer) {
    this.server = server;
  }

  /** `smtp` holds options beside the listeners; `rest` the other keys; `prepare` gets the folder before the start. */
  static async start(
    ending: Ending,
    smtp: object = {},
    rest: object = {},
    prepare?: (folder: string) => Promise<void>,
  ): Promise<SmtpFixture> {
    const listeners = [
      { mode: 'mx', port: 0 },
      { mode: 'submission', port: 0, allowPlaintextAuth: true },
      { mode: 'lmtp', port: 0 },
      { name: 'tls', mode: 'submission', port: 0, tls: 'starttls', ...selfSigned() },
    ];
    const config = JSON.stringify({ ...rest, smtp: { listeners, ...smtp } });
    return new SmtpFixture(await startInProcess(ending, config, {}, prepare));
  }

  async addUser(username: string): Promise<void> {
    await this.server.admin.json('/users', { json: { username, password } }, 201);
  }

  connect(listener: ListenerName = 'mx'): Promise<SmtpClient> {
    return SmtpClient.connect({ port: this.server.portOf(listener) });
  }

  greeted(listener: ListenerName = 'mx'): Promise<SmtpClient> {
    const hello = listener === 'lmtp' ? 'LHLO client.example' : 'EHLO client.example';
    return SmtpClient.greeted({ port: this.server.portOf(listener) }, hello);
  }

  /** A session that waits for message text. */
  async atData(recipient = 'postmaster@localhost', listener: ListenerName = 'mx'): Promise<SmtpClient> {
    const client = await this.greeted(listener);
    await this.toData(client, recipient);
    return client;
  }

  async toData(client: SmtpClient, ...recipients: readonly string[]): Promise<void> {
    const all = recipients.length === 0 ? ['postmaster@localhost'] : recipients;
    const replies = await client.pipeline([
      'MAIL FROM:<a@sender.example>',
      ...all.map((recipient) => `RCPT TO:<${recipient}>`),
      'DATA',
    ]);
    assert.equal(replies.at(-1)?.code, 354, replies.map(({ raw }) => raw).join(''));
  }

  /** Writes the text as it is, without stuffing; returns the answer to its final dot. */
  send(client: SmtpClient, wire: string): Promise<ReceivedReply> {
    client.write(Buffer.from(wire, 'latin1'));
    return client.readReply();
  }

  /** All message files of all mailboxes, as latin1. */
  async stored(): Promise<readonly string[]> {
    const mail = join(this.server.folder, 'data', 'mail');
    const names = await readdir(mail, { recursive: true, withFileTypes: true });
    const files = names.filter((entry) => entry.isFile() && /[\\/](?:new|cur)$/.test(entry.parentPath));
    return Promise.all(files.map((file) => this.#contentOf(file.parentPath, file.name)));
  }

  async #contentOf(folder: string, name: string): Promise<string> {
    const known = this.#read.get(name);
    if (known !== undefined) return known;
    const content = await readFile(join(folder, name), 'latin1');
    this.#read.set(name, content);
    return content;
  }

  /** How many files wait in the folder of messages that are being received. */
  async spooled(): Promise<number> {
    const spool = join(this.server.folder, 'data', 'spool');
    if (!existsSync(spool)) return 0;
    return (await readdir(spool, { withFileTypes: true })).filter((entry) => entry.isFile()).length;
  }

  /** Somebody else is served as if nothing had been. */
  async assertAlive(): Promise<void> {
    const client = await this.greeted();
    assert.equal((await client.command('NOOP')).code, 250);
    client.close();
  }

  /** Says each line and compares each answer. Nothing may be stored by it, and the next client must be served. */
  async converse(listener: ListenerName, steps: readonly Step[]): Promise<void> {
    const before = (await this.stored()).length;
    const client = await this.greeted(listener);
    for (const [line, expected] of steps) {
      const { raw } = await client.command(line);
      assert.match(raw, expected, line.slice(0, 100));
    }
    assert.equal(client.unread, '');
    client.close();
    assert.equal((await this.stored()).length, before);
    await this.assertAlive();
  }
}
