/** The newest lines of the log, in memory, and those who want to see each as it comes. */
export interface LogRing {
  /** Oldest first; each is one JSON object without a line end. */
  lines(): readonly string[];
  /** Tells every line from now on; the answer ends it. A listener that throws is not asked again. */
  subscribe(listener: (line: string) => void): () => void;
}

export class LineRing implements LogRing {
  readonly #size: number;
  readonly #kept: string[] = [];
  /** Where the oldest line stands once the ring is full. */
  #oldest = 0;
  readonly #listeners = new Set<(line: string) => void>();

  /** @param size how many lines are kept */
  constructor(size: number) {
    this.#size = Math.max(1, size);
  }

  push(line: string): void {
    if (this.#kept.length < this.#size) {
      this.#kept.push(line);
    } else {
      this.#kept[this.#oldest] = line;
      this.#oldest = (this.#oldest + 1) % this.#size;
    }
    for (const listener of this.#listeners) this.#tell(listener, line);
  }

  lines(): readonly string[] {
    return [...this.#kept.slice(this.#oldest), ...this.#kept.slice(0, this.#oldest)];
  }

  subscribe(listener: (line: string) => void): () => void {
    // A wrapper, so that one function may subscribe twice.
    const entry = (line: string): void => listener(line);
    this.#listeners.add(entry);
    return () => {
      this.#listeners.delete(entry);
    };
  }

  #tell(listener: (line: string) => void, line: string): void {
    try {
      listener(line);
    } catch {
      this.#listeners.delete(listener);
    }
  }
}
