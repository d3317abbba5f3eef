import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { writeFileAtomic } from '../../../core/disk/atomic.js';
import { isMissing } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import { uniqueIdPattern } from '../../../core/disk/id.js';
import type { Log } from '../../../core/log/log.js';
import type { PreparedFile } from './draft-files.js';
import type { DraftMark } from './draft-name.js';
import { lockKey } from '../folders/folder-editor.js';
import { isDomain, localOfFolder } from '../maildir/mailbox-name.js';

const Written = z.strictObject({
  domain: z.string().refine(isDomain),
  /** The mailbox's directory. */
  user: z.string().refine((name) => localOfFolder(name) !== undefined),
  draftId: z.string().regex(uniqueIdPattern),
  revision: z.int().min(0),
  uid: z.string().nullable(),
  /** The prepared file with the message, beside the note. */
  file: z.string().regex(uniqueIdPattern),
});

/** A version of a draft that was handed in: what is left is to file it in Sent and to remove the draft. */
export interface SentNote extends DraftMark {
  readonly mailbox: MailboxName;
  /** The queue entry; null when every recipient was local. */
  readonly uid: string | null;
  /** The message as it was handed in, with Bcc. */
  readonly message: PreparedFile;
}

export interface SentNotesInput {
  /** Where messages are prepared. */
  readonly folder: string;
  readonly files: FileLayer;
  readonly log: Log;
}

/** A note whose message has gone says that everything is done. */
type Read = SentNote | 'done' | 'unreadable';

const noteName = /^sent-[0-9a-f]{32}$/;
const tornName = /^\.sent-[0-9a-f]{32}\..*\.tmp$/;
/** What may lie beside the messages that are prepared. */
export const sentNoteNames: readonly RegExp[] = [noteName, tornName];

/** Notes of what was handed in and is not filed yet, durable, so that whoever comes next finishes it and sends nothing again. */
export class SentNotes {
  readonly #input: SentNotesInput;

  constructor(input: SentNotesInput) {
    this.#input = input;
  }

  async write(note: SentNote): Promise<void> {
    const { mailbox, draftId, revision, uid, message } = note;
    const [domain = '', user = ''] = lockKey(mailbox).split('/');
    const written = { domain, user, draftId, revision, uid, file: basename(message.path) };
    await writeFileAtomic(this.#pathOf(mailbox, note), JSON.stringify(written), this.#input);
  }

  async find(mailbox: MailboxName, mark: DraftMark): Promise<SentNote | undefined> {
    const note = await this.#read(this.#pathOf(mailbox, mark));
    return typeof note === 'string' ? undefined : note;
  }

  /** What dead processes left. What cannot be understood is left alone, as is what is no file. */
  async all(): Promise<readonly SentNote[]> {
    const { files, folder, log } = this.#input;
    const notes: SentNote[] = [];
    for (const name of await files.readdir(folder)) {
      const path = join(folder, name);
      const isTorn = tornName.test(name);
      if (!(isTorn || noteName.test(name)) || !(await files.lstat(path)).isFile()) continue;
      const note = isTorn ? 'done' : await this.#read(path);
      if (note === 'done') await files.unlink(path);
      else if (note === 'unreadable') log.warn({ path }, 'a note of a sent draft cannot be understood; left alone');
      else notes.push(note);
    }
    return notes;
  }

  /** One that comes back after a power cut finds that everything is done. The message is the caller's to discard. */
  async forget(mailbox: MailboxName, mark: DraftMark): Promise<void> {
    await this.#input.files.unlink(this.#pathOf(mailbox, mark)).catch(() => undefined);
  }

  async #read(path: string): Promise<Read> {
    const { files, folder } = this.#input;
    try {
      if (!(await files.lstat(path)).isFile()) return 'unreadable';
      const { domain, user, file, ...mark } = Written.parse(JSON.parse(await readFile(path, 'utf8')));
      const local = localOfFolder(user);
      if (!isDomain(domain) || local === undefined) return 'unreadable';
      const message = join(folder, file);
      const found = await files.lstat(message);
      if (!found.isFile()) return 'unreadable';
      const mailbox = { postern: 'mailbox-name', domain, user: local } as const;
      return { ...mark, mailbox, message: { path: message, size: found.size } };
    } catch (error) {
      if (isMissing(error)) return 'done';
      if (error instanceof SyntaxError || error instanceof z.ZodError) return 'unreadable';
      throw error;
    }
  }

  #pathOf(mailbox: MailboxName, { draftId, revision }: DraftMark): string {
    const key = createHash('sha256')
      .update(`${lockKey(mailbox)}/${draftId}-${revision}`)
      .digest('hex');
    return join(this.#input.folder, `sent-${key.slice(0, 32)}`);
  }
}
