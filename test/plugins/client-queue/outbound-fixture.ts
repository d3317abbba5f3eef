import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { type Clock, systemClock } from '../../../core/clock.js';
import type { Duties, SiteShares } from '../../../core/contracts/cluster.js';
import type { LocalDelivery, Parcel } from '../../../core/contracts/local-delivery.js';
import type { Entry, NewEntry, NewRecipient } from '../../../core/contracts/queue-entry.js';
import type { Submission } from '../../../core/contracts/submission.js';
import { openSpool } from '../../../core/spool/file-spool.js';
import type { FoundHops, HopFinder, HopSearch } from '../../../core/dns/next-hop.js';
import { uniqueId } from '../../../core/disk/id.js';
import { Metrics } from '../../../core/metrics/metrics.js';
import type { ClientDeadlines } from '../../../core/smtp/client/remote-server.js';
import { fileDocument } from '../../../core/disk/document.js';
import { openDestinationControls } from '../../../plugins/client-queue/delivery/destination-controls.js';
import { ClientQueueOptions } from '../../../plugins/client-queue/options.js';
import type { RemoteAttemptContext } from '../../../plugins/client-queue/delivery/remote-attempt.js';
import { Outbound, OutboundSettings } from '../../../plugins/client-queue/delivery/outbound.js';
import { openRelayQueue } from '../../../plugins/client-queue/queue/open-relay-queue.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { atEnd, type Ending } from '../../support/ending.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

export interface OutboundFixtureOptions {
  /** Of the plugin. */
  readonly options?: object;
  /** Servers by domain: addresses, dialled at the port of the options. */
  readonly hops?: Readonly<Record<string, readonly string[] | HopSearch>>;
  /** In place of `hops`. */
  readonly finder?: HopFinder;
  readonly deadlines?: Partial<ClientDeadlines>;
  readonly deliver?: LocalDelivery['deliver'];
  readonly submit?: (submission: Submission) => Promise<unknown>;
  readonly folder?: string;
  readonly clock?: Clock;
  readonly mayAttempt?: LocalDelivery['mayAttempt'];
  readonly tlsResult?: RemoteAttemptContext['tlsResult'];
  readonly duties?: Duties;
  readonly shares?: SiteShares;
  readonly keepFinishedMs?: number;
}

/** A sender's message on its way into the queue. */
export interface Enqueued {
  readonly to: readonly (string | NewRecipient)[];
  readonly sender?: string | null;
  readonly text?: string;
  /** The whole message, in place of one with that text. */
  readonly message?: Buffer;
  readonly entry?: Partial<NewEntry>;
}

export type OutboundFixture = Awaited<ReturnType<typeof outboundFixture>>;

/** Queue and worker without a server around them: what is handed in and what is delivered locally is only noted. */
export async function outboundFixture(test: Ending, given: OutboundFixtureOptions = {}) {
  const folder = given.folder ?? (await temporaryFolder(test));
  const { log, sentences } = rememberingLog();
  const { clock = systemClock } = given;
  const settings = new OutboundSettings(
    ClientQueueOptions.parse({ tls: 'never', allowPrivateAddresses: true, ...given.options }),
    folder,
  );
  const spool = await openSpool(join(folder, 'spool'), { log, reserveBytes: 0 });
  const queue = await openRelayQueue({
    folder: join(folder, 'queue'),
    clock,
    log,
    keepFinishedMs: given.keepFinishedMs ?? 3_600_000,
    maxEntries: 100_000,
  });
  const controls = await openDestinationControls(fileDocument(join(folder, 'destinations.json')), clock);
  const submissions: Submission[] = [];
  const parcels: Parcel[] = [];
  const metrics = new Metrics({ process: false });
  const outbound = new Outbound({
    queue,
    controls,
    finder: given.finder ?? finderOf(given.hops ?? {}),
    local: {
      deliver: (parcel) => {
        parcels.push(parcel);
        const all = parcel.recipients.map(({ address, hop }) => ({
          recipient: { address, hop, discarded: false },
          outcome: 'delivered' as const,
        }));
        return given.deliver?.(parcel) ?? Promise.resolve(all);
      },
      mayAttempt: given.mayAttempt ?? (() => ({ outcome: 'pass' })),
      attempted: () => undefined,
      route: () => Promise.resolve(undefined),
    },
    submission: {
      submit: async (submission) => {
        submissions.push(submission);
        await given.submit?.(submission);
        return { id: submission.id ?? '', recipients: [] };
      },
    },
    hostname: 'mail.example.org',
    settings,
    metrics: metrics.scope('client-queue'),
    tlsResult: given.tlsResult,
    duties: given.duties,
    shares: given.shares,
    ...(given.deadlines !== undefined && { deadlines: given.deadlines }),
    clock,
    log,
  });
  let isOpen = true;
  const close = async (): Promise<void> => {
    if (!isOpen) return;
    isOpen = false;
    await outbound.stop();
    await queue.close();
    await spool.close();
  };
  atEnd(test, close);

  async function enqueue({
    to,
    sender = 'anna@example.org',
    text = 'hello',
    message: whole,
    entry,
  }: Enqueued): Promise<string> {
    const writer = await spool.create(Buffer.from('Return-Path: <>\r\n'), Buffer.from('Received: by here\r\n'));
    const written = Buffer.from(`Subject: ${text}\r\nMessage-ID: <m@example.org>\r\n\r\n${text}\r\n`);
    await writer.write(whole ?? written);
    const message = await writer.finish();
    const now = clock.now();
    const uid = uniqueId();
    const prepared = await queue.prepare(
      {
        uid,
        sender,
        recipients: to.map((one) => (typeof one === 'string' ? { address: one, destination: domainOf(one) } : one)),
        protocol: 'smtp',
        route: null,
        eightBit: false,
        smtputf8: false,
        size: message.size - message.traceOffset,
        subject: text,
        internetMessageId: '<m@example.org>',
        queuedAt: now,
        expiresAt: now + 86_400_000,
        warnAt: null,
        nextAttempt: now,
        source: { listener: 'mx', user: null, remoteAddress: '127.0.0.1' },
        ...entry,
      },
      message,
    );
    await prepared.commit();
    prepared.release();
    await message.release();
    return uid;
  }

  /** The entry once that holds of it. */
  async function entryWhen(uid: string, holds: (entry: Entry) => boolean): Promise<Entry> {
    for (;;) {
      if (!isOpen) throw new Error(`The test has ended, and ${uid} is not as awaited`);
      const entry = await queue.find(uid);
      if (entry !== undefined && holds(entry)) return entry;
      await pause(5);
    }
  }

  /** The entry once every recipient was tried. */
  const tried = (uid: string): Promise<Entry> =>
    entryWhen(uid, ({ recipients }) => recipients.every(({ state }) => state !== 'queued' && state !== 'active'));

  return {
    folder,
    queue,
    controls,
    outbound,
    settings,
    metrics,
    sentences,
    submissions,
    parcels,
    enqueue,
    entryWhen,
    close,
    tried,
    /** Starts the worker and waits until every recipient was tried. */
    delivered: async (message: Enqueued): Promise<Entry> => {
      const uid = await enqueue(message);
      await outbound.start();
      return tried(uid);
    },
  };
}

const domainOf = (address: string): string => address.slice(address.lastIndexOf('@') + 1);

/** `address state code status` of each recipient. */
export function outcomes({ recipients }: Entry): readonly string[] {
  return recipients.map(({ address, state, lastReply }) =>
    lastReply === null ? `${address} ${state}` : `${address} ${state} ${lastReply.code} ${lastReply.status}`,
  );
}

function finderOf(hops: NonNullable<OutboundFixtureOptions['hops']>): HopFinder {
  const found = (site: string, addresses: readonly string[]): FoundHops => ({
    outcome: 'found',
    site,
    hops: addresses.map((address, index) => ({ host: address, address, preference: index })),
  });
  return {
    forHosts: (hosts) => Promise.resolve(found(hosts.join(), hosts)),
    forDomain: (domain) => {
      const known = hops[domain] ?? ['127.0.0.1'];
      return Promise.resolve('outcome' in known ? known : found(domain, known));
    },
  };
}
