import { connect, createServer, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { selfSigned, type KeyPair } from './certificate.js';
import { atEnd, type Ending } from './ending.js';

/** How a server can stand in the way of mail. */
export const peerKinds = [
  'silent',
  'silent at a step',
  'one byte a second',
  'no reply to the dot',
  'hanging STARTTLS',
  'endless replies',
  'no line ends',
  'lines of 64 KB',
  'refused',
  'unreachable',
  'reset',
  '421',
  'reads nothing',
  'TLS dies',
  'wrong certificate',
  'no DNS',
  'half-open',
] as const;

export type PeerKind = (typeof peerKinds)[number];

export interface PeerPlace {
  readonly kind: PeerKind | 'good';
  /** Among those of its kind. */
  readonly nth: number;
  readonly domain: string;
  readonly address: string;
}

/** What a thread is told. */
export interface BadPeersWork {
  readonly places: readonly PeerPlace[];
  readonly port: number;
  /**
   * Messages taken by good servers, connections to bad ones, to good ones, messages taken by bad ones, threads that
   * listen; one to wait at.
   */
  readonly counters: SharedArrayBuffer;
  readonly key: { readonly key: string; readonly cert: string };
  /** It accepts no connection. */
  readonly isDeaf: boolean;
}

export interface BadPeers {
  readonly port: number;
  readonly good: readonly PeerPlace[];
  readonly bad: readonly PeerPlace[];
  /** Messages that good servers have taken. */
  arrived(): number;
  /** Messages that bad ones have taken nevertheless. */
  strayed(): number;
  /** Open connections to bad servers, as far as they accept. */
  open(): number;
  close(): Promise<void>;
}

interface BadPeersOptions {
  readonly kinds: readonly PeerKind[];
  /** Bad servers of each kind, each of a domain of its own. */
  readonly each: number;
  readonly good?: number;
}

const script = fileURLToPath(new URL('bad-peers-thread.js', import.meta.url));
/** More than the system accepts on its own. */
const fillers = 4;

/** Good and bad servers at one port of many loopback addresses. */
export async function startBadPeers(test: Ending, { kinds, each, good = 1 }: BadPeersOptions): Promise<BadPeers> {
  const counters = new SharedArrayBuffer(6 * Int32Array.BYTES_PER_ELEMENT);
  const counts = new Int32Array(counters);
  const bad = kinds.flatMap((kind) => placesOf(kind, each, 20 + peerKinds.indexOf(kind)));
  const fine = placesOf('good', good, 10);
  const port = await freePort();
  const pair: KeyPair = selfSigned('somebody-else.example');
  const key = { key: pair.key, cert: pair.cert };
  const closers: (() => Promise<unknown>)[] = [];
  let started = 0;
  const start = async (places: readonly PeerPlace[], isDeaf: boolean): Promise<void> => {
    if (places.length === 0) return;
    const work: BadPeersWork = { places, port, counters, key, isDeaf };
    const thread = new Worker(script, { workerData: work });
    closers.push(() => thread.terminate());
    while (Atomics.load(counts, 4) < started + 1) await pause(5);
    started += 1;
  };
  const isDeaf = ({ kind }: PeerPlace): boolean => kind === 'unreachable';
  const isAway = ({ kind }: PeerPlace): boolean => kind === 'refused' || kind === 'no DNS';
  const close = async (): Promise<void> => {
    for (const closer of closers.splice(0)) await closer();
  };
  atEnd(test, close);
  await start(fine, false);
  await start(
    bad.filter((place) => !isDeaf(place) && !isAway(place)),
    false,
  );
  await start(bad.filter(isDeaf), true);
  for (const { address } of bad.filter(isDeaf)) {
    for (let nth = 0; nth < fillers; nth += 1) {
      const socket = connect(port, address).on('error', () => undefined);
      closers.push(() => Promise.resolve(socket.destroy()));
    }
  }
  return {
    port,
    good: fine,
    bad,
    arrived: () => Atomics.load(counts, 0),
    open: () => Atomics.load(counts, 1),
    strayed: () => Atomics.load(counts, 3),
    close,
  };
}

function placesOf(kind: PeerKind | 'good', count: number, net: number): readonly PeerPlace[] {
  const name = kind.toLowerCase().replaceAll(' ', '-');
  return Array.from({ length: count }, (_, nth) => ({
    kind,
    nth,
    domain: `${name}-${nth}.example`,
    address: `127.${net}.0.${nth + 1}`,
  }));
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
