import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { runSenders, type SendersInput } from './senders.js';

/** Something that sends so many messages and ends with the last answer. */
export interface Sender {
  readonly name: string;
  send(input: SendersInput): Promise<void>;
}

const run = promisify(execFile);

/** Postfix's smtp-source when it is installed: it costs less of the machine than a sender in JavaScript. */
export function chooseSender(): Promise<Sender> {
  if (programOnPath('smtp-source') !== undefined) return Promise.resolve(smtpSource);
  process.stderr.write('smtp-source is not installed (Debian: postfix); messages are sent by the own sender.\n');
  return Promise.resolve({
    name: 'the own sender',
    send: async (input) => {
      await runSenders(input);
    },
  });
}

const smtpSource: Sender = {
  name: 'smtp-source',
  send: async (input) => {
    const { port, messages, bytes, sessions, keep, tls, recipients, to, by } = input;
    // It knows neither TLS nor BDAT, and makes the addresses of several recipients up.
    if (tls !== undefined || recipients !== undefined || to !== undefined || by !== undefined) {
      await runSenders(input);
      return;
    }
    const counts = ['-s', String(sessions), '-m', String(messages), '-l', String(bytes)];
    const envelope = ['-f', 'bench@localhost', '-t', 'postmaster@localhost'];
    await run('smtp-source', [...counts, ...envelope, ...(keep ? ['-d'] : []), `inet:127.0.0.1:${port}`]);
  },
};

export function programOnPath(name: string): string | undefined {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/usr/lib/postfix/sbin'];
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
}
