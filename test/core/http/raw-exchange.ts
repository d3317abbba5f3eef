import { connect } from 'node:net';

/** Sends bytes as they are and resolves with everything that came back until the server closed, or until `enough` says so. */
export function rawExchange(
  port: number,
  text: string,
  enough: (received: string) => boolean = () => false,
): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    let received = '';
    const done = () => {
      socket.destroy();
      resolve(received);
    };
    socket.setTimeout(60_000, () => reject(new Error(`no end after: ${received}`)));
    socket.on('data', (chunk: Buffer) => {
      received += chunk.toString('latin1');
      if (enough(received)) done();
    });
    socket.on('close', done);
    socket.on('error', (error: NodeJS.ErrnoException) => (error.code === 'ECONNRESET' ? done() : reject(error)));
    socket.write(Buffer.from(text, 'latin1'));
  });
}

/** One request whose answer ends with the connection. */
export const rawRequest = (port: number, method: string, target: string, headers: readonly string[] = [], body = '') =>
  rawExchange(
    port,
    `${[`${method} ${target} HTTP/1.1`, `Host: 127.0.0.1:${port}`, 'Connection: close', ...headers].join('\r\n')}\r\n\r\n${body}`,
  );

export const statusOf = (answer: string): number => Number(/^HTTP\/1\.1 (\d{3})/.exec(answer)?.[1]);
