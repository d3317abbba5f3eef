import { createServer } from 'node:net';

/**
 * Listens for a moment, to see whether a server could.
 *
 * @returns undefined when it could, else the system's code: `EADDRINUSE`, `EACCES`, `EADDRNOTAVAIL`, `ENOTFOUND`, …
 */
export function tryToListen(host: string, port: number): Promise<string | undefined> {
  const server = createServer((socket) => socket.destroy());
  return new Promise((resolve) => {
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.name));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}
