import type { Clock } from '../../../core/clock.js';
import type { SubmissionService } from '../../../core/contracts/submission.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { folderSyncOf } from '../../../core/disk/folder.js';
import type { Log } from '../../../core/log/log.js';
import { DraftFiles } from './draft-files.js';
import { DraftSending } from './draft-sending.js';
import { DraftShelf, type ShelfInput } from './draft-shelf.js';
import { Turns } from '../maildir/turns.js';
import { Drafts } from './drafts.js';
import type { UniqueNames } from '../maildir/maildir-name.js';
import { SentNotes } from './sent-note.js';
import type { StoreReader } from '../messages/store-reader.js';

export interface DraftDeskInput {
  readonly reader: StoreReader;
  readonly names: UniqueNames;
  readonly provide: ShelfInput['provide'];
  readonly quotas: ShelfInput['quotas'];
  readonly submission: SubmissionService;
  /** Private, on the file system of the mailboxes; emptied here. */
  readonly folder: string;
  /** The limit of a message now: a reload may change it. */
  readonly messageBytes: () => number;
  readonly clock: Clock;
  readonly log: Log;
  readonly files?: FileLayer;
}

/** Everything that drafts need, wired. */
export interface DraftDesk {
  readonly drafts: Drafts;
  readonly shelf: DraftShelf;
  readonly sending: DraftSending;
}

export async function openDraftDesk(input: DraftDeskInput): Promise<DraftDesk> {
  const { reader, names, provide, quotas, submission, folder, messageBytes, clock, log, files = nodeFiles } = input;
  const sync = folderSyncOf(files);
  const prepared = new DraftFiles({ folder, files, sync, messageBytes });
  const shelf = new DraftShelf({ folders: reader.mailboxFolders, provide, quotas, names, files, sync, prepared, log });
  const now = (): Date => new Date(clock.now());
  const drafts = new Drafts({ reader, shelf, files: prepared, turns: new Turns(), now });
  const notes = new SentNotes({ folder, files, log });
  const sending = new DraftSending({ reader, drafts, shelf, files: prepared, notes, submission, now, log });
  await prepared.sweep(await sending.resume());
  return { drafts, shelf, sending };
}
