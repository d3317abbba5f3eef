import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../../../../core/clock.js';
import { openSpool, type FileSpool, type SpoolOptions } from '../../../../core/spool/file-spool.js';
import type { FileLayer } from '../../../../core/disk/file-layer.js';
import type { SpooledMessage } from '../../../../core/spool/spool.js';
import { shards } from '../../../../plugins/client-queue/queue/bodies.js';
import type { FileRelayQueue } from '../../../../plugins/client-queue/queue/file-relay-queue.js';
import { openRelayQueue, type RelayQueueOptions } from '../../../../plugins/client-queue/queue/open-relay-queue.js';
import { FaultyFiles } from '../../../core/spool/faulty-files.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { HandClock } from '../../../support/hand-clock.js';
import type { QueueHarness } from '../../../kit/relay-queue/harness.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';

const returnPath = Buffer.from('Return-Path: <sender@home.example>\r\n');
const trace = Buffer.from('Received: from a by b;\r\n\tSat, 21 Nov 2026 00:00:00 +0000\r\n');

export interface FileQueueFixture extends QueueHarness {
  queue: FileRelayQueue;
  readonly folder: string;
  readonly files: FaultyFiles;
  readonly spool: FileSpool;
  readonly sentences: readonly string[];
  message(body?: string): Promise<SpooledMessage>;
  readonly options: RelayQueueOptions;
  reopen(options?: Partial<RelayQueueOptions>): Promise<FileRelayQueue>;
  /** Opens it again as if the process had died: nobody has said goodbye. */
  afterCrash(options?: Partial<RelayQueueOptions>): Promise<FileRelayQueue>;
}

export async function fileQueueFixture(
  test: Ending,
  wishes: Partial<RelayQueueOptions> = {},
  spoolWishes: Partial<SpoolOptions> = {},
): Promise<FileQueueFixture> {
  const root = await temporaryFolder(test);
  // Files have the time of the machine, and are compared with it.
  const clock = new HandClock(systemClock.now());
  const files = new FaultyFiles();
  const { log, sentences } = rememberingLog();
  const folder = join(root, 'queue');
  const options: RelayQueueOptions = {
    folder,
    clock,
    log,
    files,
    keepFinishedMs: 7 * 86_400_000,
    maxEntries: 1000,
    segmentBytes: 256 * 1024,
    spreadMs: 1,
    random: () => 0,
    ...wishes,
  };
  const spool = await openSpool(join(root, 'spool'), { log, reserveBytes: 0, ...spoolWishes });
  await spool.recover();
  const opened = new Set<FileRelayQueue>();
  let kill = (): Promise<void> => Promise.resolve();
  const open = async (changed: Partial<RelayQueueOptions> = {}): Promise<FileRelayQueue> => {
    const mortal = mortalFiles(changed.files ?? files);
    kill = mortal.kill;
    const queue = await openRelayQueue({ ...options, ...changed, files: mortal.files });
    opened.add(queue);
    return queue;
  };
  atEnd(test, async () => {
    files.order();
    for (const queue of opened) await queue.close().catch(() => undefined);
    await spool.close();
  });
  const fixture: FileQueueFixture = {
    queue: await open(),
    folder,
    files,
    spool,
    clock,
    sentences,
    options,
    message: (body) => spooled(spool, body),
    reopen: async (changed) => {
      await fixture.queue.close();
      fixture.queue = await open(changed);
      return fixture.queue;
    },
    afterCrash: async (changed) => {
      await kill();
      fixture.queue = await open(changed);
      return fixture.queue;
    },
  };
  return fixture;
}

/**
 * A file layer that does nothing any more when its process has died. The system ends the calls that are under way before the next process
 * can have the folder.
 */
function mortalFiles(files: FileLayer): { readonly files: FileLayer; readonly kill: () => Promise<void> } {
  let dead = false;
  const underWay = new Set<Promise<unknown>>();
  const mortal = new Proxy(files, {
    get: (target, name: keyof FileLayer) => {
      const call = target[name].bind(target) as (...given: readonly unknown[]) => Promise<unknown>;
      return async (...given: readonly unknown[]) => {
        if (dead) throw new Error('the process is dead');
        const called = call(...given);
        underWay.add(called);
        try {
          return await called;
        } finally {
          underWay.delete(called);
        }
      };
    },
  });
  const kill = async (): Promise<void> => {
    dead = true;
    await Promise.allSettled(underWay);
  };
  return { files: mortal, kill };
}

async function spooled(spool: FileSpool, body = 'Subject: hello\r\n\r\nA line.\r\n'): Promise<SpooledMessage> {
  const writer = await spool.create(returnPath, trace);
  await writer.write(Buffer.from(body));
  return writer.finish();
}

/** The uids of the messages that lie in the queue. */
export async function bodiesOf(folder: string): Promise<readonly string[]> {
  const names = await Promise.all(shards.map((shard) => readdir(join(folder, shard))));
  return names.flat().flatMap((name) => (name.endsWith('.eml') ? name.slice(0, -'.eml'.length) : []));
}
