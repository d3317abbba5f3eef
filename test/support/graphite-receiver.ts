import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { atEnd, type Ending } from './ending.js';

export interface GraphitePoint {
  readonly path: string;
  readonly tags: Readonly<Record<string, string>>;
  readonly value: number;
  /** Seconds since 1970. */
  readonly time: number;
}

/** Takes lines over TCP as carbon does, but refuses what carbon would only drop. */
export class GraphiteReceiver {
  readonly port: number;
  readonly points: GraphitePoint[] = [];
  readonly complaints: string[] = [];

  private constructor(port: number) {
    this.port = port;
  }

  static async start(test: Ending): Promise<GraphiteReceiver> {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const receiver = new GraphiteReceiver((server.address() as AddressInfo).port);
    server.on('connection', (socket) => receiver.#take(socket));
    atEnd(test, () => void server.close());
    return receiver;
  }

  #take(socket: Socket): void {
    let rest = '';
    socket.setEncoding('utf8');
    socket.on('data', (chunk: string) => {
      const lines = `${rest}${chunk}`.split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) this.#read(line);
    });
    socket.on('end', () => {
      if (rest !== '') this.complaints.push(`a line without its end: ${rest}`);
      socket.end();
    });
  }

  /** `path;tag=value value seconds`: three words, nothing else. */
  #read(line: string): void {
    const [series = '', value = '', time = '', ...more] = line.split(' ');
    const [path = '', ...pairs] = series.split(';');
    const tags = pairs.map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)] as const);
    const faults = [
      more.length > 0 || time === '' ? 'it has not three words' : '',
      /^[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*$/.test(path) ? '' : 'its path is malformed',
      /^-?\d+(?:\.\d+)?(?:e[+-]?\d+)?$/.test(value) ? '' : 'its value is no number',
      /^\d{9,11}$/.test(time) ? '' : 'its time is none in seconds',
      tags.every(([name, text]) => /^[^!;^=~][^!;^=]*$/.test(name) && /^[^;~][^;]*$/.test(text))
        ? ''
        : 'a tag is malformed',
      new Set(tags.map(([name]) => name)).size === tags.length ? '' : 'a tag occurs twice',
    ].filter((fault) => fault !== '');
    if (faults.length > 0) this.complaints.push(`${line}: ${faults.join(', ')}`);
    this.points.push({ path, tags: Object.fromEntries(tags), value: Number(value), time: Number(time) });
  }
}
