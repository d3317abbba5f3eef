import { Low, type Adapter } from 'lowdb';
import { join } from 'node:path';
import { z } from 'zod';
import type { Documents, StoredDocument } from '../contracts/cluster.js';
import { startError } from '../problem.js';
import { writeFileAtomic, type AtomicOptions } from './atomic.js';
import { asStorageProblem, faultCode, isMissing } from './fault.js';
import { readRegularText } from './file-layer.js';

export interface DocumentSchema<T> {
  /** Validates the content, and decides about unknown keys. */
  readonly schema: z.ZodType<T>;
  /** Content while there is none. */
  readonly initial: T;
}

export interface DocumentOptions<T> extends DocumentSchema<T>, Pick<AtomicOptions, 'files'> {
  /** Absolute path of a JSON file. */
  readonly file: string;
}

/** Small operator data in JSON, held in memory, replaced atomically and durably. */
export interface Document<T> {
  /** Never changed in place. */
  readonly data: T;
  /**
   * Changes a copy, or takes the returned value; durable when it resolves. Updates run one after the other. When
   * `change` throws or the write fails (a problem), nothing has changed. Runs `change` again when another server was
   * quicker.
   */
  update(change: (draft: T) => T | void): Promise<void>;
  /** Called after `data` has changed because another server has changed the document. Returns the undo. */
  watch(listener: () => void): () => void;
  /** Reads what another server may have changed. What cannot be read or understood does not replace `data`. */
  look(): Promise<void>;
}

/** Throws a start error for a file that is invalid, and leaves it as it is. */
export function openDocument<T>({ file, files, ...options }: DocumentOptions<T>): Promise<Document<T>> {
  return openStoredDocument(fileDocument(file, files), options);
}

/** Throws a start error for content that is invalid, and leaves it as it is. */
export async function openStoredDocument<T>(
  stored: StoredDocument,
  { schema, initial }: DocumentSchema<T>,
): Promise<Document<T>> {
  const low = new Low<T>(new StoredJson(stored, schema), initial);
  await low.read();
  const document = new LowDocument(low, schema);
  stored.watch(() => void document.look());
  return document;
}

/** Documents of a server that is alone: `<name>.json` in the folder. */
export const fileDocuments = (folder: string): Documents => ({
  get: (name) => fileDocument(join(folder, `${name}.json`)),
});

/** A file that only this process replaces. */
export const fileDocument = (file: string, files?: AtomicOptions['files']): StoredDocument =>
  new FileDocument(file, files);

class FileDocument implements StoredDocument {
  readonly place: string;
  readonly #files: AtomicOptions['files'];
  #version: number | undefined;

  constructor(file: string, files: AtomicOptions['files']) {
    this.place = file;
    this.#files = files;
  }

  async read(): Promise<{ readonly text: string; readonly version: number } | undefined> {
    const file = this.place;
    try {
      const text = await readRegularText(file);
      this.#version ??= 1;
      return { text, version: this.#version };
    } catch (error) {
      if (isMissing(error)) return undefined;
      if (faultCode(error) === 'EFTYPE' || faultCode(error) === 'ENXIO') {
        throw startError(`${file} is not a regular file. Move it away, or put a backup in its place.`, error);
      }
      throw startError(`Cannot read ${file}: ${reason(error)}. Give this user the right to read and write it.`, error);
    }
  }

  async replace(text: string, version: number | undefined): Promise<number | undefined> {
    if (version !== this.#version) return undefined;
    const next = (version ?? 0) + 1;
    this.#version = next;
    try {
      await writeFileAtomic(this.place, text, this.#files === undefined ? {} : { files: this.#files });
      return next;
    } catch (error) {
      this.#version = version;
      throw error;
    }
  }

  watch(): () => void {
    return () => undefined;
  }
}

/** Another server has changed the document meanwhile. */
class Outdated extends Error {}

class StoredJson<T> implements Adapter<T> {
  readonly #stored: StoredDocument;
  readonly #schema: z.ZodType<T>;
  #version: number | undefined;

  constructor(stored: StoredDocument, schema: z.ZodType<T>) {
    this.#stored = stored;
    this.#schema = schema;
  }

  async read(): Promise<T | null> {
    const found = await this.#stored.read();
    if (found === undefined) {
      this.#version = undefined;
      return null;
    }
    try {
      const data = this.#schema.parse(JSON.parse(found.text));
      this.#version = found.version;
      return data;
    } catch (error) {
      const advice = 'It was left as it is. Repair it, put a backup in its place, or move it away to begin anew.';
      throw startError(`${this.#stored.place} cannot be understood: ${mistakesOf(error)}. ${advice}`, error);
    }
  }

  async write(data: T): Promise<void> {
    const version = await this.#stored.replace(`${JSON.stringify(data, null, 2)}\n`, this.#version);
    if (version === undefined) throw new Outdated();
    this.#version = version;
  }
}

class LowDocument<T> implements Document<T> {
  readonly #low: Low<T>;
  readonly #schema: z.ZodType<T>;
  /** Readers see this; `#low.data` is ahead of it during a write. */
  #data: T;
  #last: Promise<unknown> = Promise.resolve();
  readonly #listeners = new Set<() => void>();

  constructor(low: Low<T>, schema: z.ZodType<T>) {
    this.#low = low;
    this.#schema = schema;
    this.#data = low.data;
  }

  get data(): T {
    return this.#data;
  }

  update(change: (draft: T) => T | void): Promise<void> {
    const mine = this.#last.then(() => this.#apply(change));
    this.#last = mine.catch(() => undefined);
    return mine;
  }

  watch(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  look(): Promise<void> {
    const mine = this.#last.then(() => this.#read()).catch(() => undefined);
    this.#last = mine;
    return mine;
  }

  async #apply(change: (draft: T) => T | void): Promise<void> {
    const draft = structuredClone(this.#data);
    this.#low.data = this.#schema.parse(change(draft) ?? draft);
    try {
      await this.#low.write();
    } catch (error) {
      this.#low.data = this.#data;
      if (!(error instanceof Outdated)) throw asStorageProblem(error);
      await this.#read();
      return this.#apply(change);
    }
    this.#data = this.#low.data;
  }

  async #read(): Promise<void> {
    const before = this.#low.data;
    await this.#low.read();
    this.#data = this.#low.data;
    if (this.#data !== before) for (const listener of this.#listeners) listener();
  }
}

const maxMistakes = 10;

/** Lists the mistakes with their paths in the document. */
function mistakesOf(error: unknown): string {
  if (!(error instanceof z.ZodError)) return reason(error);
  const mistakes = error.issues.map(({ path, message }) => {
    const what = message.replace(/^Invalid input: /, '').replace(/\.$/, '');
    return path.length === 0 ? what : `${path.map(String).join('.')}: ${what}`;
  });
  const more = mistakes.length - maxMistakes;
  return `${mistakes.slice(0, maxMistakes).join('; ')}${more > 0 ? `; and ${more} more` : ''}`;
}

function reason(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.replace(/\s+/g, ' ').replace(/\.$/, '');
}
