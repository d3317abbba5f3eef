import type { FileLayer } from '../disk/file-layer.js';

/** A file that is empty and nobody's yet. */
export interface ReadyFile {
  readonly path: string;
  readonly fd: number;
}

export interface ReadyFilesInput {
  readonly files: FileLayer;
  /** A path in the spool that nobody has had. */
  readonly freshPath: () => string;
  /** What they are opened with; `open(2)`. */
  readonly flags: number;
  /** At most so many are kept ready. */
  readonly most?: number;
  readonly windowMs?: number;
}

const usual = { most: 64, windowMs: 1000 };
/** Threads have other work too. */
const mostAtOnce = 4;
/** A server that takes fewer messages in a window creates their files as they come. */
const worthwhile = 16;

/**
 * Files of the spool that threads have created ahead: where names come and go a file system may look long for a free inode,
 * and nobody should wait for that. There are as many as the last second may want in its eighth part; none on a quiet server.
 */
export class ReadyFiles {
  readonly #input: ReadyFilesInput & typeof usual;
  readonly #ready: ReadyFile[] = [];
  #creating = 0;
  #wanted = 0;
  #target = 0;
  #window: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(input: ReadyFilesInput) {
    this.#input = { ...usual, ...input };
  }

  /** Undefined when none is ready: the caller creates his own. */
  take(): ReadyFile | undefined {
    if (this.#closed) return undefined;
    this.#wanted += 1;
    this.#window ??= setInterval(() => this.#look(), this.#input.windowMs).unref();
    const file = this.#ready.pop();
    this.#fill();
    return file;
  }

  /** Once in a window. */
  #look(): void {
    const { most } = this.#input;
    this.#target = this.#wanted < worthwhile ? 0 : Math.min(most, Math.ceil(this.#wanted / 8));
    if (this.#wanted === 0) {
      clearInterval(this.#window);
      this.#window = undefined;
    }
    this.#wanted = 0;
    while (this.#ready.length > this.#target) void this.#drop(this.#ready.pop());
    this.#fill();
  }

  #fill(): void {
    while (this.#creating < mostAtOnce && this.#creating + this.#ready.length < this.#target) {
      this.#creating += 1;
      void this.#create();
    }
  }

  /** A disk that refuses is not asked again before the next message. */
  async #create(): Promise<void> {
    const { files, freshPath, flags } = this.#input;
    const path = freshPath();
    try {
      const file = { path, fd: await files.open(path, flags, 0o600) };
      this.#creating -= 1;
      if (this.#closed) return await this.#drop(file);
      this.#ready.push(file);
      this.#fill();
    } catch {
      this.#creating -= 1;
    }
  }

  async #drop(file: ReadyFile | undefined): Promise<void> {
    if (file === undefined) return;
    const { files } = this.#input;
    await files.close(file.fd).catch(() => undefined);
    // What cannot be removed now the next start removes.
    await files.unlink(file.path).catch(() => undefined);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#window);
    await Promise.all(this.#ready.splice(0).map((file) => this.#drop(file)));
  }
}
