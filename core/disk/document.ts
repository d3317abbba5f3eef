import { Low, type Adapter } from 'lowdb';
import { z } from 'zod';
import { startError } from '../problem.js';
import { writeFileAtomic, type AtomicOptions } from './atomic.js';
import { asStorageProblem, faultCode, isMissing } from './fault.js';
import { readRegularText } from './file-layer.js';

export interface DocumentOptions<T> extends Pick<AtomicOptions, 'files'> {
  /** Absolute path of a JSON file. */
  readonly file: string;
  /** Validates the content, and decides about unknown keys. */
  readonly schema: z.ZodType<T>;
  /** Content while there is no file. */
  readonly initial: T;
}

/** Small operator data: one JSON file, held in memory, replaced atomically and durably. */
export interface Document<T> {
  /** Content of the file. Never changed in place. */
  readonly data: T;
  /**
   * Changes a copy, or takes the returned value; durable when it resolves. Updates run one after the other. When
   * `change` throws or the write fails (a problem), nothing has changed.
   */
  update(change: (draft: T) => T | void): Promise<void>;
}

/** Throws a start error for a file that is invalid, and leaves it as it is. */
export async function openDocument<T>(options: DocumentOptions<T>): Promise<Document<T>> {
  const low = new Low<T>(new DurableJson(options), options.initial);
  await low.read();
  return new LowDocument(low, options.schema);
}

class DurableJson<T> implements Adapter<T> {
  readonly #options: DocumentOptions<T>;

  constructor(options: DocumentOptions<T>) {
    this.#options = options;
  }

  async read(): Promise<T | null> {
    const { file, schema } = this.#options;
    let text: string;
    try {
      text = await readRegularText(file);
    } catch (error) {
      if (isMissing(error)) return null;
      if (faultCode(error) === 'EFTYPE' || faultCode(error) === 'ENXIO') {
        throw startError(`${file} is not a regular file. Move it away, or put a backup in its place.`, error);
      }
      throw startError(`Cannot read ${file}: ${reason(error)}. Give this user the right to read and write it.`, error);
    }
    try {
      return schema.parse(JSON.parse(text));
    } catch (error) {
      const advice = 'It was left as it is. Repair it, put a backup in its place, or move it away to begin anew.';
      throw startError(`${file} cannot be understood: ${mistakesOf(error)}. ${advice}`, error);
    }
  }

  async write(data: T): Promise<void> {
    const { file, files } = this.#options;
    const text = `${JSON.stringify(data, null, 2)}\n`;
    await writeFileAtomic(file, text, files === undefined ? {} : { files });
  }
}

class LowDocument<T> implements Document<T> {
  readonly #low: Low<T>;
  readonly #schema: z.ZodType<T>;
  /** Readers see this; `#low.data` is ahead of it during a write. */
  #data: T;
  #last: Promise<unknown> = Promise.resolve();

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

  async #apply(change: (draft: T) => T | void): Promise<void> {
    const draft = structuredClone(this.#data);
    this.#low.data = this.#schema.parse(change(draft) ?? draft);
    try {
      await this.#low.write();
    } catch (error) {
      this.#low.data = this.#data;
      throw asStorageProblem(error);
    }
    this.#data = this.#low.data;
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
