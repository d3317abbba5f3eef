import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { suiteEnding } from '../support/ending.js';
import { ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const suite = suiteEnding();
const client = '127.0.1.9';
const config = `{
  http: { port: 0, limits: { exemptLoopback: false } },
  smtp: { limits: { exemptLoopback: false }, listeners: [{ mode: 'mx', port: 0 }] },
}`;
const megabyte = 2 ** 20;

/** What one client may take by all its connections at a level, in megabytes, and what it sends on each. */
interface Level {
  readonly title: string;
  readonly protocol: 'http' | 'smtp';
  /** As many as its limit, and some more. */
  readonly connections: number;
  readonly bytes: string;
  readonly most: number;
}

const get = 'GET /sign-in HTTP/1.1\r\nHost: localhost\r\n\r\n';
const form = 'POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n';
const hello = 'EHLO client.example\r\nMAIL FROM:<a@client.example>\r\nRCPT TO:<postmaster@localhost>\r\n';

const levels: readonly Level[] = [
  { title: 'requests that nobody reads', protocol: 'http', connections: 110, bytes: get.repeat(40_000), most: 350 },
  {
    title: 'a header without an end',
    protocol: 'http',
    connections: 110,
    bytes: `GET / HTTP/1.1\r\nX-Long: ${'x'.repeat(megabyte)}`,
    most: 100,
  },
  {
    title: 'the body of a form without an end',
    protocol: 'http',
    connections: 110,
    bytes: `${form}Transfer-Encoding: chunked\r\n\r\n${`1000\r\n${'a'.repeat(4096)}\r\n`.repeat(256)}`,
    most: 100,
  },
  { title: 'commands without a line end', protocol: 'smtp', connections: 55, bytes: 'x'.repeat(megabyte), most: 100 },
  {
    title: 'commands whose replies nobody reads',
    protocol: 'smtp',
    connections: 55,
    bytes: 'HELP\r\n'.repeat(megabyte / 6),
    most: 100,
  },
  {
    title: 'a message without an end',
    protocol: 'smtp',
    connections: 55,
    bytes: `${hello}BDAT 40000000\r\n${'text\r\n'.repeat((2 * megabyte) / 6)}`,
    most: 100,
  },
];

async function residentMegabytes(server: ServerProcess): Promise<number> {
  const status = await readFile(`/proc/${server.pid}/status`, 'latin1');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024;
}

async function flood({ protocol, connections, bytes }: Level, server: ServerProcess): Promise<readonly Socket[]> {
  const port = protocol === 'http' ? Number(new URL(server.http).port) : server.smtpPort;
  return Promise.all(
    Array.from({ length: connections }, async () => {
      const socket = connect({ port, host: '127.0.0.1', localAddress: client });
      socket.on('error', () => undefined);
      await once(socket, 'connect');
      socket.write(bytes);
      return socket;
    }),
  );
}

describe('the memory that one client takes is bounded at each level', () => {
  for (const level of levels) {
    test(level.title, { timeout: 120_000 }, async (t) => {
      const server = await ServerProcess.start(suite, { folder: await temporaryFolder(suite), config });
      await fetch(`${server.http}/sign-in`);
      const before = await residentMegabytes(server);
      const sockets = await flood(level, server);
      let most = 0;
      for (let look = 0; look < 30; look += 1) {
        await pause(100);
        most = Math.max(most, (await residentMegabytes(server)) - before);
      }
      for (const socket of sockets) socket.destroy();
      t.diagnostic(`${most.toFixed(0)} MB`);
      assert.ok(most < level.most, `${most.toFixed(0)} MB more`);
      assert.equal((await fetch(`${server.http}/health`)).status, 200);
      await server.kill('SIGKILL');
    });
  }
});
