import { createSocket, type Socket as Udp } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { atEnd, type Ending } from './ending.js';

/** What a name server knows of a name, or how it behaves when it is asked for it. */
export interface DnsName {
  readonly A?: readonly string[];
  /** Written out in full: eight groups. */
  readonly AAAA?: readonly string[];
  readonly MX?: readonly (readonly [preference: number, exchange: string])[];
  readonly TXT?: readonly string[];
  readonly PTR?: readonly string[];
  readonly CNAME?: string;
  /** `3 1 1 0123…` */
  readonly TLSA?: readonly string[];
  /** Answers are marked as validated (AD) for those who ask for that. */
  readonly secure?: boolean;
  /** SERVFAIL for these types alone. */
  readonly failing?: readonly string[];
  /** Answers with another id, for another name and of another type come first. */
  readonly strays?: boolean;
  /** In place of any record. */
  readonly rcode?: 'SERVFAIL' | 'NXDOMAIN' | 'REFUSED';
  /** Never answers. */
  readonly silent?: boolean;
  /** Over UDP it only says that the answer is too long. */
  readonly truncated?: boolean;
  readonly ttl?: number;
}

export type Zone = Readonly<Record<string, DnsName>>;

const types = { A: 1, CNAME: 5, SOA: 6, PTR: 12, MX: 15, TXT: 16, AAAA: 28, TLSA: 52 } as const;
const rcodes = { NOERROR: 0, SERVFAIL: 2, NXDOMAIN: 3, REFUSED: 5 } as const;

/** A name server on 127.0.0.1, UDP and TCP, that knows one zone; a name that is not in it does not exist. */
export class DnsServer {
  zone: Zone;
  /** `MX example.com`, in the order in which they came; those over TCP with ` tcp`. */
  readonly questions: string[] = [];
  readonly #udp: Udp;
  readonly #tcp: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(zone: Zone) {
    this.zone = zone;
    this.#udp = createSocket('udp4');
    this.#tcp = createServer((socket) => this.#serve(socket));
  }

  /** Closed when the test ends. */
  static async start(test: Ending, zone: Zone): Promise<DnsServer> {
    for (let tries = 0; ; tries += 1) {
      const server = new DnsServer(zone);
      try {
        await server.#listen();
        atEnd(test, () => server.#close());
        return server;
      } catch (error) {
        server.#tcp.close();
        if (tries >= 10) throw error;
      }
    }
  }

  /** `127.0.0.1:port`. */
  get address(): string {
    return `127.0.0.1:${(this.#tcp.address() as AddressInfo).port}`;
  }

  /** Both at the same port: that of TCP may be taken for UDP. */
  async #listen(): Promise<void> {
    this.#tcp.listen(0, '127.0.0.1');
    await once(this.#tcp, 'listening');
    this.#udp.bind((this.#tcp.address() as AddressInfo).port, '127.0.0.1');
    await once(this.#udp, 'listening');
    this.#udp.on('message', (query, { address, port }) => {
      const { name } = question(query);
      if (this.zone[name]?.strays === true) {
        for (const stray of strays(query)) this.#udp.send(stray, port, address);
      }
      const answer = this.#answer(query, 'udp');
      if (answer !== undefined) this.#udp.send(answer, port, address);
    });
  }

  async #close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#tcp.close();
    await new Promise<void>((resolve) => this.#udp.close(resolve));
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => this.#sockets.delete(socket));
    let received: Buffer = Buffer.alloc(0);
    socket.on('data', (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      while (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) {
        const length = received.readUInt16BE(0);
        const answer = this.#answer(received.subarray(2, 2 + length), 'tcp');
        received = received.subarray(2 + length);
        if (answer !== undefined) socket.write(Buffer.concat([number16(answer.length), answer]));
      }
    });
  }

  /** RFC 1035 §4.1: the header, the question as it came, the answers. */
  #answer(query: Buffer, over: 'udp' | 'tcp'): Buffer | undefined {
    const { name, type, end } = question(query);
    this.questions.push(`${type} ${name}${over === 'tcp' ? ' tcp' : ''}`);
    const known = this.zone[name];
    if (known?.silent === true) return undefined;
    const truncated = known?.truncated === true && over === 'udp';
    const fails = known?.failing?.includes(type) === true ? 'SERVFAIL' : known?.rcode;
    const records = known === undefined || fails !== undefined || truncated ? [] : this.#records(name, type);
    const rcode = rcodes[known === undefined ? 'NXDOMAIN' : (fails ?? 'NOERROR')];
    const validated = ((query[3] ?? 0) & 0x20) !== 0 && this.#isSecure(name, type) ? 0x20 : 0;
    const flags = 0x8480 | (truncated ? 0x0200 : 0) | validated | rcode;
    const counts = [number16(1), number16(records.length), number16(0), number16(0)];
    return Buffer.concat([query.subarray(0, 2), number16(flags), ...counts, query.subarray(12, end), ...records]);
  }

  #isSecure(name: string, type: string): boolean {
    const { secure = false, CNAME: alias } = this.zone[name] ?? {};
    return secure && (alias === undefined || type === 'CNAME' || this.#isSecure(alias, type));
  }

  #records(name: string, type: string): readonly Buffer[] {
    const known = this.zone[name] ?? {};
    const ttl = known.ttl ?? 300;
    if (known.CNAME !== undefined && type === 'CNAME') return [record(name, 'CNAME', ttl, encodeName(known.CNAME))];
    if (known.CNAME !== undefined) {
      return [record(name, 'CNAME', ttl, encodeName(known.CNAME)), ...this.#records(known.CNAME, type)];
    }
    const list = {
      A: () => (known.A ?? []).map((ip) => Buffer.from(ip.split('.').map(Number))),
      AAAA: () =>
        (known.AAAA ?? []).map((ip) => Buffer.concat(ip.split(':').map((part) => number16(Number(`0x${part}`))))),
      MX: () => (known.MX ?? []).map(([preference, host]) => Buffer.concat([number16(preference), encodeName(host)])),
      TXT: () => (known.TXT ?? []).map((text) => Buffer.concat([Buffer.from([text.length]), Buffer.from(text)])),
      PTR: () => (known.PTR ?? []).map(encodeName),
      CNAME: () => [],
      SOA: () => [Buffer.concat([encodeName('.'), encodeName('.'), Buffer.alloc(20)])],
      TLSA: () => (known.TLSA ?? []).map(tlsaData),
    } as const;
    return isType(type) ? list[type]().map((data) => record(name, type, ttl, data)) : [];
  }
}

function tlsaData(text: string): Buffer {
  const [usage = '', selector = '', matching = '', hex = ''] = text.split(' ');
  return Buffer.concat([Buffer.from([usage, selector, matching].map(Number)), Buffer.from(hex, 'hex')]);
}

/** Answers to other queries: with no records, marked as validated. */
function strays(query: Buffer): readonly Buffer[] {
  const { end } = question(query);
  const answer = Buffer.concat([
    query.subarray(0, 2),
    number16(0x84a0),
    number16(1),
    Buffer.alloc(6),
    query.subarray(12, end),
  ]);
  const changed = (at: number): Buffer => {
    const copy = Buffer.from(answer);
    copy[at] = (copy[at] ?? 0) ^ 1;
    return copy;
  };
  return [changed(1), changed(13), changed(end - 3)];
}

const isType = (type: string): type is keyof typeof types => type in types;

function question(query: Buffer): { readonly name: string; readonly type: string; readonly end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  const number = query.readUInt16BE(at + 1);
  const type = Object.entries(types).find(([, value]) => value === number)?.[0] ?? String(number);
  return { name: labels.join('.').toLowerCase(), type, end: at + 5 };
}

function record(name: string, type: keyof typeof types, ttl: number, data: Buffer): Buffer {
  const time = Buffer.alloc(4);
  time.writeUInt32BE(ttl);
  return Buffer.concat([encodeName(name), number16(types[type]), number16(1), time, number16(data.length), data]);
}

function encodeName(name: string): Buffer {
  const labels = name.split('.').filter((label) => label !== '');
  return Buffer.concat([...labels.flatMap((one) => [Buffer.from([one.length]), Buffer.from(one)]), Buffer.from([0])]);
}

function number16(value: number): Buffer {
  return Buffer.from([(value >> 8) & 255, value & 255]);
}
