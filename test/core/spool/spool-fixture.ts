import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openSpool, type FileSpool, type SpoolOptions } from '../../../core/spool/file-spool.js';
import { makeFolder } from '../../../core/disk/folder.js';
import type { FindLinked } from '../../../core/spool/restoration.js';
import type { SpooledMessage } from '../../../core/spool/spool.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { untilTrue } from '../../support/until.js';
import { FaultyFiles } from './faulty-files.js';
import { rememberingLog } from './remembering-log.js';

export const returnPath = Buffer.from('Return-Path: <sender@example.org>\r\n');
export const trace = Buffer.from('Received: from a by b;\r\n\tSat, 21 Nov 2026 00:00:00 +0000\r\n');
export const message = Buffer.from('Subject: hello\r\nFrom: a@example.org\r\n\r\nA line.\r\n');
export const whole = Buffer.concat([returnPath, trace, message]);
/** Larger than what stays in memory. */
export const largeMessage = Buffer.concat([message, Buffer.alloc(700_001, 'seventeen letters')]);

const never = 1e9;
/** Messages are durable by their records, and no checkpoint comes by itself. */
export const inLog = {
  durability: 'log',
  checkpointMs: never,
  checkpointBytes: never,
  segmentBytes: 1024 * 1024,
} as const;

export interface SpoolFixture {
  /** Contains `spool` and an empty folder `new`. */
  readonly root: string;
  readonly inbox: string;
  readonly files: FaultyFiles;
  readonly spool: FileSpool;
  readonly sentences: readonly string[];
  /** Those of every process. */
  readonly lives: FaultyFiles[];
}

interface LifeOptions extends Partial<SpoolOptions> {
  readonly files?: FaultyFiles;
}

export async function openFixture(
  test: Parameters<typeof temporaryFolder>[0],
  options: LifeOptions = {},
): Promise<SpoolFixture> {
  const root = await temporaryFolder(test);
  const { files = new FaultyFiles() } = options;
  const { log, sentences } = rememberingLog();
  const inbox = join(root, 'new');
  await makeFolder(inbox);
  const spool = await openSpool(join(root, 'spool'), { log, reserveBytes: 0, ...options, files });
  await spool.recover();
  return { root, inbox, files, spool, sentences, lives: [files] };
}

/** Kills the process and starts another on its folder: nothing of the old spool is closed. */
export async function nextLife(
  fixture: SpoolFixture,
  options: LifeOptions & { readonly finder?: () => FindLinked } = {},
): Promise<FileSpool> {
  await Promise.all(fixture.lives.map((files) => files.kill()));
  const { files = new FaultyFiles(), finder, ...given } = options;
  fixture.lives.push(files);
  const { log } = rememberingLog();
  const spool = await openSpool(join(fixture.root, 'spool'), { ...inLog, reserveBytes: 0, files, log, ...given });
  await spool.recover(finder);
  return spool;
}

/** Spools the bytes in pieces, as a peer sends them. */
export async function received(spool: FileSpool, body: Buffer = message, piece = 10_000): Promise<SpooledMessage> {
  const writer = await spool.create(returnPath, trace);
  for (let at = 0; at < body.length; at += piece) await writer.write(body.subarray(at, at + piece));
  return writer.finish();
}

export function contentOf(fixture: SpoolFixture, name: string): Promise<Buffer> {
  return readFile(join(fixture.inbox, name));
}

/** Waits for the list of segments that the log writes beside its first record. */
export async function segmentsListed({ calls }: FaultyFiles): Promise<void> {
  await untilTrue('the list of segments', () => {
    const listed = calls.findIndex((call) => call.startsWith('rename ') && call.includes('segments.json'));
    return listed >= 0 && calls.slice(listed).some((call) => call.startsWith('close '));
  });
}
