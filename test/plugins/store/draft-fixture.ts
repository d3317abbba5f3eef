import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pino } from 'pino';
import { systemClock } from '../../../core/clock.js';
import type { Submission } from '../../../core/contracts/submission.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { parseCorrespondents } from '../../../plugins/store/mime/compose.js';
import { type DraftService, openDraftService } from '../../../plugins/store/drafts/draft-sending.js';
import type { DraftFields } from '../../../plugins/store/drafts/draft-composition.js';
import { parseMailboxName } from '../../../plugins/store/maildir/mailbox-name.js';
import { UniqueNames } from '../../../plugins/store/maildir/maildir-name.js';
import { StoreReader } from '../../../plugins/store/messages/store-reader.js';
import { atEnd, type Ending } from '../../support/ending.js';

export const ann = parseMailboxName({ domain: 'example.org', user: 'ann' });

/** What was handed in, with the bytes of the message. */
export interface HandedIn {
  readonly submission: Submission;
  readonly message: string;
}

export interface DraftFixture extends DraftService {
  readonly root: string;
  readonly reader: StoreReader;
  readonly handedIn: HandedIn[];
  /** Names of the files of drafts. */
  readonly files: (folder?: string) => Promise<readonly string[]>;
  /** The only file of a folder, as it lies on the disk. */
  readonly only: (folder?: string) => Promise<string>;
}

/**
 * Drafts of ann@example.org over a folder, without a server around them; what is sent goes nowhere.
 * @param known a reader of the same folder, which takes long to open
 */
export async function openDrafts(
  test: Ending,
  data: string,
  files: FileLayer = nodeFiles,
  known?: StoreReader,
): Promise<DraftFixture> {
  const root = join(data, 'mail');
  const home = join(root, 'example.org', 'ann');
  for (const part of ['new', 'cur', 'tmp']) await mkdir(join(home, part), { recursive: true });
  const reader = known ?? (await StoreReader.open({ root, clock: systemClock }));
  if (known === undefined) atEnd(test, () => reader.close());
  const handedIn: HandedIn[] = [];
  const prepared = join(data, 'drafts');
  await mkdir(prepared, { recursive: true });
  const draftServices = await openDraftService({
    reader,
    names: new UniqueNames({ host: 'mail.example.org', clock: systemClock }),
    provide: async (mailbox, name) => {
      for (const part of ['new', 'cur', 'tmp']) await mkdir(join(home, name.directory, part), { recursive: true });
      return reader.mailboxFolders.find(mailbox, name);
    },
    quotas: { whileReserved: (_mailbox, _bytes, _came, place) => place(), noteChange: () => Promise.resolve() },
    submission: {
      submit: async (submission) => {
        const pieces: Buffer[] = [];
        for await (const piece of submission.content()) pieces.push(piece);
        handedIn.push({ submission, message: Buffer.concat(pieces).toString('latin1') });
        const recipients = submission.recipients.map((address) => ({ address, target: 'mailbox' }));
        return { id: `t${handedIn.length}`, recipients };
      },
    },
    folder: prepared,
    messageBytes: () => 50 * 1024 * 1024,
    clock: systemClock,
    log: pino({ level: 'silent' }),
    files,
  });
  const namesIn = async (folder = 'Drafts') =>
    (await readdir(join(home, `.${folder}`, 'cur')).catch(() => [] as string[])).toSorted((a, b) => a.localeCompare(b));
  return {
    ...draftServices,
    root,
    reader,
    handedIn,
    files: namesIn,
    only: async (folder = 'Drafts') => {
      const [name, ...others] = await namesIn(folder);
      if (name === undefined || others.length > 0) throw new Error(`${folder} has ${others.length} files too many`);
      return readFile(join(home, `.${folder}`, 'cur', name), 'latin1');
    },
  };
}

export interface WrittenFields extends Partial<Omit<DraftFields, 'to' | 'cc' | 'bcc'>> {
  readonly to?: string;
  readonly cc?: string;
  readonly bcc?: string;
}

export function fields(given: WrittenFields = {}): DraftFields {
  const people = (list: string) => parseCorrespondents(list, 100);
  const { to = '', cc = '', bcc = '', ...rest } = given;
  return {
    from: null,
    subject: '',
    text: null,
    html: null,
    inReplyTo: null,
    references: [],
    ...rest,
    to: people(to),
    cc: people(cc),
    bcc: people(bcc),
  };
}

export const change = (given: WrittenFields) => ({ kind: 'fields', fields: fields(given) }) as const;

export function upload(filename: string, content: string | Buffer, contentType = 'application/octet-stream') {
  return {
    filename,
    contentType,
    async *open() {
      yield await Promise.resolve(Buffer.from(content));
    },
  };
}
