import { mkdirSync, readFileSync } from 'node:fs';
import { open, rename } from 'node:fs/promises';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import { SMTPServer } from 'smtp-server';
import { SMTPConnection } from 'smtp-server/lib/smtp-connection.js';
import { syncFolder } from '../core/disk/folder.js';

/**
 * The peer: smtp-server alone, with the same durability and nothing else: a file with its own fsync, renamed into
 * `new`, and a folder fsync that all who wait share. No user lookup, rules, trace headers, log or metrics, and no wait for those who talk
 * before the greeting.
 */
const [folder = 'bare', key, cert] = process.argv.slice(2);
for (const name of ['tmp', 'new']) mkdirSync(join(folder, name), { recursive: true });
let count = 0;

async function store(stream: NodeJS.ReadableStream): Promise<void> {
  const name = `${Date.now()}.${(count += 1)}`;
  const file = await open(join(folder, 'tmp', name), 'wx', 0o600);
  try {
    for await (const chunk of stream) await file.write(chunk as Buffer);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(join(folder, 'tmp', name), join(folder, 'new', name));
  await syncFolder(join(folder, 'new'));
}

class EagerConnection extends SMTPConnection {
  override init(): void {
    this._setListeners(() => this.connectionReady());
  }
}

class EagerServer extends SMTPServer {
  override connect(socket: Socket): void {
    const connection = new EagerConnection(this, socket);
    this.connections.add(connection);
    connection.on('error', () => undefined);
    connection.init();
  }
}

const server = new EagerServer({
  authOptional: true,
  ...(key !== undefined && cert !== undefined
    ? { disabledCommands: ['AUTH'], key: readFileSync(key), cert: readFileSync(cert) }
    : { disabledCommands: ['AUTH', 'STARTTLS'] }),
  disableReverseLookup: true,
  logger: false,
  onData: (stream, _session, callback) => {
    store(stream).then(
      () => callback(),
      (error: unknown) => callback(error instanceof Error ? error : new Error(String(error))),
    );
  },
});
server.on('error', () => {});
const listening = server.listen(0, '127.0.0.1', () => {
  process.stdout.write(`bare ready smtp=127.0.0.1:${(listening.address() as AddressInfo).port}\n`);
});
process.on('SIGTERM', () => process.exit(0));
