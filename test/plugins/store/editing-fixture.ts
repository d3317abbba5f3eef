import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type Clock, systemClock } from '../../../core/clock.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import type { FolderName } from '../../../plugins/store/folders/folder-name.js';
import { UniqueNames } from '../../../plugins/store/maildir/maildir-name.js';
import { openStoreEditor, type ReadStatus, type StoreEditor } from '../../../plugins/store/messages/message-editor.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import type { Ending } from '../../support/ending.js';
import { ReadingFixture } from './reading-fixture.js';

export interface EditingOptions {
  readonly files?: FileLayer;
  readonly quota?: number;
  readonly clock?: Clock;
  /** Id of the server. */
  readonly node?: string;
}

export const thisNode = '01k7m3v9q0000abcdefg';

/** A mailbox on the disk with a reader and an editor of it. */
export class EditingFixture {
  readonly reading: ReadingFixture;
  readonly editor: StoreEditor;
  readonly sentences: readonly string[];

  private constructor(reading: ReadingFixture, editor: StoreEditor, sentences: readonly string[]) {
    this.reading = reading;
    this.editor = editor;
    this.sentences = sentences;
  }

  static async open(test: Ending, options: EditingOptions = {}): Promise<EditingFixture> {
    return EditingFixture.over(await ReadingFixture.open(test), options);
  }

  /** Another editor of the same mailbox, as after a restart. */
  static async over(reading: ReadingFixture, options: EditingOptions = {}): Promise<EditingFixture> {
    const { files = nodeFiles, quota = null, clock = systemClock } = options;
    const { log, sentences } = rememberingLog();
    const editor = await openStoreEditor({
      reader: reading.reader,
      root: reading.root,
      node: options.node ?? thisNode,
      names: new UniqueNames({ host: 'mail.example.org', clock }),
      limitOf: () => Promise.resolve(quota),
      clock,
      log,
      files,
    });
    return new EditingFixture(reading, editor, sentences);
  }

  get mailbox() {
    return this.reading.mailbox;
  }

  readonly folder = (name: string): FolderName => this.reading.folder(name);

  append(content: string | Buffer, folder = 'INBOX', status: ReadStatus = 'read') {
    const source = Readable.from([Buffer.from(content)]);
    return this.editor.messages.append(this.mailbox, this.folder(folder), source, status);
  }

  async folderNames(): Promise<readonly string[]> {
    return (await this.reading.reader.folders(this.mailbox)).map(({ name }) => name);
  }

  /** Content of every message by folder, sorted: what is the same whatever files are called. */
  async contents(): Promise<Record<string, readonly string[]>> {
    const found: [string, readonly string[]][] = [];
    for (const name of await this.folderNames()) {
      const path = this.reading.pathOf(name);
      const files: string[] = [];
      for (const part of ['new', 'cur']) {
        for (const file of await readdir(join(path, part))) files.push(await readFile(join(path, part, file), 'utf8'));
      }
      found.push([name, files.toSorted()]);
    }
    return Object.fromEntries(found.toSorted(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** Names in the mailbox that no reader takes for a folder: leftovers, when there are any. */
  async hidden(): Promise<readonly string[]> {
    return (await readdir(this.reading.home)).filter((name) => name.startsWith('..'));
  }

  async intents(): Promise<readonly string[]> {
    return readdir(join(this.reading.root, '.intents', thisNode)).catch(() => []);
  }
}

/** The words of the problem that a promise rejects with. */
export async function problemOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => 'none',
    (error: Error & { problem?: string }) => error.problem ?? error.message,
  );
}
