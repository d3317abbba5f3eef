import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * A port of 127.0.0.1 that nobody listens on at this moment, for programs that cannot be told to choose one. It is below
 * the ports that the system gives to connections, so that none of the tests beside this one is given it later.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 32_000);
    const server = createServer().listen(port, '127.0.0.1');
    const listening = await once(server, 'listening').catch(() => undefined);
    if (listening === undefined) continue;
    server.close();
    await once(server, 'close');
    return port;
  }
}
