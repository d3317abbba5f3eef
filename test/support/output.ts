import type { ChildProcess } from 'node:child_process';

/** What a child process writes, kept; and somebody who waits for a part of it. */
export class Output {
  stdout = '';
  stderr = '';
  #ended = false;
  #changed: () => void = () => undefined;

  constructor(child: ChildProcess) {
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.stdout += text;
      this.#changed();
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
      this.#changed();
    });
    child.on('close', () => {
      this.#ended = true;
      this.#changed();
    });
  }

  /** Patience is for a loaded machine; who waits longer waits for something that does not come. */
  async find(pattern: RegExp, timeoutMs = 30_000): Promise<RegExpExecArray> {
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      this.#changed();
    }, timeoutMs);
    try {
      return await this.#search(pattern, () => late);
    } finally {
      clearTimeout(timer);
    }
  }

  async #search(pattern: RegExp, late: () => boolean): Promise<RegExpExecArray> {
    for (;;) {
      const found = pattern.exec(this.stdout);
      if (found !== null) return found;
      if (this.#ended || late()) throw new Error(`no ${pattern} in:\n${this.stdout}${this.stderr}`);
      await new Promise<void>((resolve) => {
        this.#changed = resolve;
      });
    }
  }
}
