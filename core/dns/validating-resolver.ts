import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { connect, isIPv6 } from 'node:net';
import {
  type Answer,
  AUTHENTIC_DATA,
  decode,
  type DecodedPacket,
  encode,
  type MxData,
  RECURSION_DESIRED,
  type TlsaData,
} from 'dns-packet';
import { abortAfter, Semaphore } from '../concurrency.js';
import type { TlsaRecord } from '../net/tlsa.js';
import {
  type DnsResponse,
  dnsFailure,
  type DnsFailure,
  type DnsFailureKind,
  isDnsFailure,
  type LookupOptions,
  type MxRecord,
  questionName,
  type SecureResolver,
} from './resolver.js';
import { bareName, serverAddress, SystemResolver, type SystemResolverOptions } from './system-resolver.js';

type ValidatedType = 'MX' | 'A' | 'AAAA' | 'CNAME' | 'TLSA' | 'SOA';

interface Query {
  readonly id: number;
  readonly name: string;
  readonly type: ValidatedType;
  readonly bytes: Buffer;
}

interface NameServer {
  readonly host: string;
  readonly port: number;
}

/** UDP payload that passes every path without fragments. */
const udpBytes = 1232;
/** Aliases that are followed. */
const maxAliases = 8;
/** TLSA records of one name, and hex digits of all: a few digests are usual. */
const maxTlsa = 32;
const maxTlsaDigits = 16_384;
/** Datagrams that are no answer to the query; more of them are guesses. */
const maxStrays = 20;
/** Sockets at a time. */
const maxQueries = 500;

/**
 * Asks name servers that validate (DNSSEC) for what DANE needs, and believes their AD bit (RFC 6840 §5.8): they must be
 * trusted, and reached over a path that is. Over UDP, and over TCP where an answer is truncated.
 */
export class ValidatingResolver extends SystemResolver implements SecureResolver {
  readonly #servers: readonly NameServer[];
  readonly #timeoutMs: number;
  readonly #tries: number;
  readonly #totalMs: number;
  readonly #queries = new Semaphore(maxQueries);

  /** @throws Problem `invalid` when a server is no IP address with or without a port */
  constructor(options: SystemResolverOptions & Required<Pick<SystemResolverOptions, 'servers'>>) {
    super(options);
    const { servers, timeoutMs = 3000, tries = 2, totalMs = 15_000 } = options;
    this.#servers = servers.map(nameServerOf);
    this.#timeoutMs = timeoutMs;
    this.#tries = tries;
    this.#totalMs = totalMs;
  }

  override resolveMx(name: string, options?: LookupOptions): Promise<DnsResponse<MxRecord>> {
    return this.#look(name, 'MX', options, (data) => {
      const { exchange, preference = 0 } = data as MxData;
      return { exchange: bareName(exchange), preference };
    });
  }

  override resolve4(name: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#look(name, 'A', options, String);
  }

  override resolve6(name: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#look(name, 'AAAA', options, String);
  }

  resolveCname(name: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#look(name, 'CNAME', options, (data) => bareName(String(data)));
  }

  async resolveTlsa(name: string, options?: LookupOptions): Promise<DnsResponse<TlsaRecord>> {
    const found = await this.#look(name, 'TLSA', options, (data) => {
      const { usage, selector, matchingType: matching, certificate } = data as TlsaData;
      return { usage, selector, matching, data: certificate.toString('hex') };
    });
    const digits = found.records.reduce((sum, record) => sum + record.data.length, 0);
    if (found.records.length > maxTlsa || digits > maxTlsaDigits) {
      throw dnsFailure('servfail', `TLSA ${name}: ${found.records.length} records of ${digits} digits`);
    }
    return found;
  }

  /** Whether its answer about the root, which is signed, is marked as validated. */
  async validates(options?: LookupOptions): Promise<boolean> {
    return (await this.#look('.', 'SOA', options, () => true)).secure === true;
  }

  async #look<T>(
    name: string,
    type: ValidatedType,
    options: LookupOptions | undefined,
    read: (data: unknown) => T,
  ): Promise<DnsResponse<T>> {
    // A longer label would be written as something else.
    if (name !== '.' && questionName(name) === undefined) throw dnsFailure('nxdomain', `${type} ${name.slice(0, 255)}`);
    await this.#queries.acquire();
    try {
      return readAnswer(await this.#ask(name, type, options?.signal), name, type, read);
    } finally {
      this.#queries.release();
    }
  }

  async #ask(name: string, type: ValidatedType, signal: AbortSignal | undefined): Promise<DecodedPacket> {
    const question = `${type} ${name}`;
    const until = abortAfter(this.#totalMs, ...(signal === undefined ? [] : [signal]));
    let failure = dnsFailure('timeout', question);
    for (const server of Array.from({ length: this.#tries }, () => this.#servers).flat()) {
      if (until.aborted) throw dnsFailure(signal?.aborted === true ? 'aborted' : 'timeout', question);
      try {
        const query = newQuery(name, type);
        const limit = abortAfter(this.#timeoutMs, until);
        const short = await overUdp(server, query, limit);
        const answer = short.flag_tc ? await overTcp(server, query, abortAfter(this.#timeoutMs, until)) : short;
        // In the header; RFC 6895 §2.3.
        const { rcode } = answer as DecodedPacket & { readonly rcode: string };
        if (rcode === 'NOERROR' || rcode === 'NXDOMAIN') return answer;
        failure = dnsFailure('servfail', `${question}: ${rcode}`);
      } catch (error) {
        failure = isDnsFailure(error) ? error : dnsFailure('servfail', question, error);
      }
    }
    throw failure;
  }
}

/** @throws Problem `invalid` */
export function nameServerOf(written: string): NameServer {
  const address = serverAddress(written);
  const colon = address.lastIndexOf(':');
  return { host: address.slice(0, colon).replace(/^\[|\]$/g, ''), port: Number(address.slice(colon + 1)) };
}

/** AD says that the bit is understood (RFC 6840 §5.7); the id is not to be guessed. */
function newQuery(name: string, type: ValidatedType): Query {
  const id = randomInt(65_536);
  const bytes = encode({
    type: 'query',
    id,
    flags: RECURSION_DESIRED | AUTHENTIC_DATA,
    questions: [{ name, type, class: 'IN' }],
    additionals: [
      {
        type: 'OPT',
        name: '.',
        udpPayloadSize: udpBytes,
        extendedRcode: 0,
        ednsVersion: 0,
        flags: 0,
        flag_do: false,
        options: [],
      },
    ],
  });
  return { id, name: name.toLowerCase(), type, bytes };
}

/** Undefined for bytes that are no answer to the query. */
function answerTo({ id, name, type }: Query, bytes: Buffer): DecodedPacket | undefined {
  try {
    const packet = decode(bytes);
    const [asked, ...others] = packet.questions ?? [];
    const isOurs = packet.type === 'response' && packet.id === id && others.length === 0;
    return isOurs && asked?.type === type && asked.class === 'IN' && asked.name.toLowerCase() === name
      ? packet
      : undefined;
  } catch {
    return undefined;
  }
}

/** From a new port, which the system picks at random. */
function overUdp({ host, port }: NameServer, query: Query, signal: AbortSignal): Promise<DecodedPacket> {
  const question = `${query.type} ${query.name}`;
  return new Promise((resolve, reject) => {
    const socket = createSocket(isIPv6(host) ? 'udp6' : 'udp4');
    let strays = 0;
    const settle = (result: DecodedPacket | DnsFailure): void => {
      signal.removeEventListener('abort', aborted);
      socket.removeAllListeners().on('error', () => undefined);
      socket.close();
      if (isDnsFailure(result)) reject(result);
      else resolve(result);
    };
    const fail = (kind: DnsFailureKind, cause?: unknown): void => settle(dnsFailure(kind, question, cause));
    const aborted = (): void => fail('timeout');
    signal.addEventListener('abort', aborted, { once: true });
    socket.on('error', (error) => fail('servfail', error));
    socket.on('message', (bytes) => {
      const answer = answerTo(query, bytes);
      if (answer !== undefined) return settle(answer);
      strays += 1;
      return strays > maxStrays ? fail('servfail') : undefined;
    });
    // A connected socket takes datagrams from that server alone.
    socket.connect(port, host, () => socket.send(query.bytes));
  });
}

function overTcp({ host, port }: NameServer, query: Query, signal: AbortSignal): Promise<DecodedPacket> {
  const question = `${query.type} ${query.name}`;
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port });
    const settle = (result: DecodedPacket | DnsFailure): void => {
      signal.removeEventListener('abort', aborted);
      socket.removeAllListeners().on('error', () => undefined);
      socket.destroy();
      if (isDnsFailure(result)) reject(result);
      else resolve(result);
    };
    const fail = (kind: DnsFailureKind, cause?: unknown): void => settle(dnsFailure(kind, question, cause));
    const aborted = (): void => fail('timeout');
    signal.addEventListener('abort', aborted, { once: true });
    let received: Buffer = Buffer.alloc(0);
    socket.on('data', (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      if (received.length < 2 || received.length < 2 + received.readUInt16BE(0)) return;
      settle(answerTo(query, received.subarray(2, 2 + received.readUInt16BE(0))) ?? dnsFailure('servfail', question));
    });
    socket.on('error', (error) => fail('servfail', error)).on('close', () => fail('servfail'));
    const length = Buffer.alloc(2);
    length.writeUInt16BE(query.bytes.length);
    socket.write(Buffer.concat([length, query.bytes]));
  });
}

type OwnedAnswer = Extract<Answer, { readonly data: unknown }> & { readonly ttl?: number; readonly class?: string };

/** The records at the end of the aliases of a name. @throws DnsFailure when there are none */
function readAnswer<T>(
  packet: DecodedPacket,
  name: string,
  type: ValidatedType,
  read: (data: unknown) => T,
): DnsResponse<T> {
  const answers = (packet.answers ?? []) as readonly OwnedAnswer[];
  const secure = packet.flag_ad;
  let canonical = bareName(name);
  let ttl = Infinity;
  for (let aliases = 0; aliases <= maxAliases; aliases += 1) {
    const at = answers.filter((one) => one.class === 'IN' && bareName(one.name) === canonical);
    const found = at.filter((one) => one.type === type);
    const [alias] = at.filter((one) => one.type === 'CNAME');
    for (const one of found.length > 0 ? found : [alias]) ttl = Math.min(ttl, one?.ttl ?? Infinity);
    if (found.length > 0) return { records: found.map(({ data }) => read(data)), ttl, secure, canonical };
    if (alias === undefined) {
      const { rcode } = packet as DecodedPacket & { readonly rcode: string };
      throw dnsFailure(rcode === 'NXDOMAIN' ? 'nxdomain' : 'nodata', `${type} ${name}`, undefined, secure);
    }
    canonical = bareName(alias.data as string);
  }
  throw dnsFailure('servfail', `${type} ${name}: more than ${maxAliases} aliases`);
}
