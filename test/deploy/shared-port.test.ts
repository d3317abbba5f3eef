import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { canReusePort } from '../../core/net/listening-place.js';
import { deliver, lines } from '../support/delivery.js';
import type { Ending } from '../support/ending.js';
import { freePort } from '../support/free-port.js';
import { HttpClient } from '../support/http-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { runPostern, ServerProcess } from '../support/server-process.js';
import { ServiceManager } from '../support/service-manager.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

/** One of two servers that take mail at the same port. */
interface Twin {
  /** Resolves with the address of its own pages. */
  start(): Promise<string>;
  stop(): Promise<void>;
}

interface Twins {
  readonly port: number;
  readonly twins: readonly [Twin, Twin];
}

async function withReusePort(t: Ending): Promise<Twins> {
  const port = await freePort();
  const twin = async (): Promise<Twin> => {
    const folder = await temporaryFolder(t);
    const config = `{ smtp: { listeners: [{ port: ${port}, reusePort: true }] } }`;
    let server: ServerProcess | undefined;
    return {
      async start() {
        server = await ServerProcess.start(t, { folder, config, args: ['--smtp-port', `${port}`] });
        return server.http;
      },
      stop: async () => assert.equal((await server?.kill('SIGTERM'))?.code, 0),
    };
  };
  return { port, twins: [await twin(), await twin()] };
}

async function withSockets(t: Ending): Promise<Twins> {
  const config = `{ smtp: { listeners: [{ socket: 'smtp' }] } }`;
  const options = async () => ({ folder: await temporaryFolder(t), config, sockets: ['smtp'] });
  const [one, other] = await ServiceManager.openSeveral(t, [await options(), await options()]);
  assert.ok(one !== undefined && other !== undefined);
  const twin = (manager: ServiceManager): Twin => ({
    start: () => manager.start(),
    stop: async () => assert.equal(await manager.stop(), 0),
  });
  return { port: one.portOf('smtp'), twins: [twin(one), twin(other)] };
}

/** Calls again and again until it is told to stop; counts. */
async function callers(port: number, until: AbortSignal) {
  const counts = { greeted: 0, refused: 0, broken: 0 };
  const one = async (): Promise<void> => {
    while (!until.aborted) {
      try {
        const client = await SmtpClient.connect({ port });
        if ((await client.readReply().finally(() => client.close())).code === 220) counts.greeted += 1;
      } catch (error) {
        // What was accepted for a process that ends may be reset before the caller sees that it is connected.
        if ((error as NodeJS.ErrnoException).code === 'ECONNREFUSED') counts.refused += 1;
        else counts.broken += 1;
      }
    }
  };
  await Promise.all([one(), one(), one(), one()]);
  return counts;
}

const lacksReusePort = canReusePort() ? false : `Node.js ${process.versions.node} has no reusePort`;

for (const [way, open, skip] of [
  ['reusePort', withReusePort, lacksReusePort],
  ['sockets of a service manager', withSockets, false],
] as const) {
  describe(`two servers at one port, by ${way}`, { skip }, () => {
    test('both take mail, each into its own data folder, with pages of its own', async (t) => {
      const { port, twins } = await open(t);
      const pages = [await twins[0].start(), await twins[1].start()];
      assert.notEqual(pages[0], pages[1]);
      const subjects = async (http: string) => (await listMessages(HttpClient.admin(http))).map((one) => one.subject);
      const sent: string[] = [];
      const shares = async () => Promise.all(pages.map(async (http) => (await subjects(http)).length));
      while (sent.length < 40 || (await shares()).includes(0)) {
        const round = Array.from({ length: 8 }, (_, index) => `number ${sent.length + index}`);
        await Promise.all(round.map((subject) => deliver(port, lines(`Subject: ${subject}`, '', 'text'))));
        sent.push(...round);
      }
      const taken = (await Promise.all(pages.map(subjects))).flat();
      assert.deepEqual(taken.toSorted(), sent.toSorted());
    });

    test('while one is restarted the other takes all connections: none is refused', async (t) => {
      const { port, twins } = await open(t);
      await Promise.all(twins.map((twin) => twin.start()));
      const over = new AbortController();
      const calling = callers(port, over.signal);
      for (let round = 0; round < 4; round += 1) {
        const twin = twins[round % 2] ?? assert.fail();
        await twin.stop();
        await twin.start();
      }
      over.abort();
      const { greeted, refused, broken } = await calling;
      t.diagnostic(`${greeted} greeted, ${refused} refused, ${broken} broken`);
      assert.equal(refused, 0);
      assert.ok(greeted > 0);
    });
  });
}

test(
  'where Node.js has no reusePort, the configuration is refused with a sentence',
  { skip: canReusePort() },
  async (t) => {
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'postern.json5'), '{ smtp: { listeners: [{ reusePort: true }] } }');
    const { code, stderr } = await runPostern(['config', 'check'], { cwd: folder });
    assert.equal(code, 1);
    assert.match(stderr, /listeners\.0\.reusePort: this needs Node\.js 22\.12/);
  },
);

test('which Node.js has it', () => {
  const versions = ['20.20.2', '22.11.0', '22.12.0', '23.0.0', '23.1.0', '24.0.0'];
  assert.deepEqual(
    versions.map((version) => canReusePort(version)),
    [false, false, true, false, true, true],
  );
});
