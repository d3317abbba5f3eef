import { connect, type Socket } from 'node:net';
import { authorization } from './site.js';

export interface HttpQueueing {
  readonly port: number;
  readonly messages: number;
  readonly bytes: number;
  /** Connections, each with one request at a time. */
  readonly connections: number;
}

const headEnd = Buffer.from('\r\n\r\n');

/** `POST /client/queue` with a raw message, over connections that are kept; resolves with the milliseconds of each answer. */
export async function queueOverHttp({ port, messages, bytes, connections }: HttpQueueing): Promise<readonly number[]> {
  const request = requestOf(port, bytes);
  const times: number[] = [];
  let left = messages;
  const session = async (): Promise<void> => {
    const client = new Client(port, request);
    while ((left -= 1) >= 0) {
      const began = performance.now();
      await client.post();
      times.push(performance.now() - began);
    }
    client.close();
  };
  await Promise.all(Array.from({ length: connections }, session));
  return times;
}

function requestOf(port: number, bytes: number): Buffer {
  const head = 'From: bench@localhost\r\nTo: postmaster@localhost\r\nSubject: bench\r\n\r\n';
  const line = `${'x'.repeat(70)}\r\n`;
  const message = `${head}${line.repeat(Math.ceil((bytes - head.length) / line.length))}`;
  const fields = [
    'POST /client/queue?mail=bench@localhost&rcpt=postmaster@localhost HTTP/1.1',
    `Host: 127.0.0.1:${port}`,
    `Authorization: ${authorization}`,
    'Accept: application/json',
    'Content-Type: message/rfc822',
    `Content-Length: ${message.length}`,
  ];
  return Buffer.from(`${fields.join('\r\n')}\r\n\r\n${message}`);
}

/** One connection; answers must say their length, and be 202. */
class Client {
  readonly #socket: Socket;
  readonly #request: Buffer;
  #buffer: Buffer = Buffer.alloc(0);
  #waiting: { readonly resolve: () => void; readonly reject: (error: Error) => void } | undefined;

  constructor(port: number, request: Buffer) {
    this.#request = request;
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.on('data', (chunk) => this.#take(chunk));
    this.#socket.on('error', (error) => this.#waiting?.reject(error));
    this.#socket.on('close', () => this.#waiting?.reject(new Error('connection closed')));
  }

  post(): Promise<void> {
    this.#socket.write(this.#request);
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    this.#buffer = this.#buffer.length === 0 ? chunk : Buffer.concat([this.#buffer, chunk]);
    const end = this.#buffer.indexOf(headEnd);
    if (end === -1) return;
    const head = this.#buffer.toString('latin1', 0, end);
    const length = Number(/\r\nContent-Length: (\d+)/i.exec(head)?.[1]);
    if (this.#buffer.length < end + headEnd.length + length) return;
    const answer = this.#buffer.toString('latin1');
    this.#buffer = Buffer.alloc(0);
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (head.startsWith('HTTP/1.1 202')) waiting?.resolve();
    else waiting?.reject(new Error(`an answer without use:\n${answer}`));
  }
}
