import { join } from 'node:path';
import { openSpool, type FileSpool, type SpoolOptions } from '../../../../core/disk/file-spool.js';
import type { SpooledMessage } from '../../../../core/disk/spool.js';
import {
  openRelayQueue,
  type OpenedRelayQueue,
  type RelayQueueOptions,
} from '../../../../plugins/client-queue/queue/open-relay-queue.js';
import { FaultyFiles } from '../../../core/disk/faulty-files.js';
import { rememberingLog } from '../../../core/disk/remembering-log.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { HandClock } from '../../../support/hand-clock.js';
import type { QueueGround } from '../../../support/relay-queue/ground.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';

const returnPath = Buffer.from('Return-Path: <sender@home.example>\r\n');
const trace = Buffer.from('Received: from a by b;\r\n\tSat, 21 Nov 2026 00:00:00 +0000\r\n');

export interface FileQueueGround extends QueueGround {
  queue: OpenedRelayQueue;
  readonly folder: string;
  readonly files: FaultyFiles;
  readonly spool: FileSpool;
  readonly sentences: readonly string[];
  readonly options: RelayQueueOptions;
  reopen(options?: Partial<RelayQueueOptions>): Promise<OpenedRelayQueue>;
  /** Opens it again as if the process had died: nobody has said goodbye. */
  afterCrash(options?: Partial<RelayQueueOptions>): Promise<OpenedRelayQueue>;
}

export async function fileQueueGround(
  test: Ending,
  wishes: Partial<RelayQueueOptions> = {},
  spoolWishes: Partial<SpoolOptions> = {},
): Promise<FileQueueGround> {
  const root = await temporaryFolder(test);
  const clock = new HandClock();
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
  const opened = new Set<OpenedRelayQueue>();
  const open = async (changed: Partial<RelayQueueOptions> = {}): Promise<OpenedRelayQueue> => {
    const queue = await openRelayQueue({ ...options, ...changed });
    opened.add(queue);
    return queue;
  };
  atEnd(test, async () => {
    files.order();
    for (const queue of opened) await queue.close();
    await spool.close();
  });
  const ground: FileQueueGround = {
    queue: await open(),
    folder,
    files,
    spool,
    clock,
    sentences,
    options,
    message: (body) => spooled(spool, body),
    reopen: async (changed) => {
      await ground.queue.close();
      ground.queue = await open(changed);
      return ground.queue;
    },
    afterCrash: async (changed) => {
      ground.queue = await open(changed);
      return ground.queue;
    },
  };
  return ground;
}

async function spooled(spool: FileSpool, body = 'Subject: hello\r\n\r\nA line.\r\n'): Promise<SpooledMessage> {
  const writer = await spool.create(returnPath, trace);
  await writer.write(Buffer.from(body));
  return writer.finish();
}
