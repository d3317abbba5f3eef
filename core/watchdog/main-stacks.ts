import { Session } from 'node:inspector';

/** Frames of one stack that are told. */
const MAX_FRAMES = 60;

interface CallFrame {
  readonly functionName: string;
  readonly location: { readonly scriptId: string; readonly lineNumber: number; readonly columnNumber: number };
}

/**
 * Reads stacks of the main thread from a worker: it stops that thread for the moment that it takes.
 *
 * A worker that has had one of these must not end by itself, but be ended by the main thread when that has heard a message sent after
 * `close`: until then Node may still answer to the session, and where it meets a worker that is just going it aborts the process.
 */
export class MainStacks {
  readonly #session = new Session();
  readonly #scripts = new Map<string, string>();
  readonly #ready: Promise<void>;
  #closed = false;
  /** The innermost frame of each first: `function (file:line:column)`. */
  readonly seen: (readonly string[])[] = [];

  constructor() {
    this.#session.connectToMainThread();
    this.#session.on(
      'Debugger.scriptParsed',
      ({ params }: { readonly params: { readonly scriptId: string; readonly url: string } }) => {
        // A file that was loaded again has a query behind its name.
        this.#scripts.set(params.scriptId, params.url.replace(/\?.*$/, ''));
      },
    );
    this.#session.on(
      'Debugger.paused',
      ({ params }: { readonly params: { readonly callFrames: readonly CallFrame[] } }) => {
        // What is told late finds a session that is over, and the main thread goes on without us.
        if (this.#closed) return;
        this.#session.post('Debugger.resume');
        this.seen.push(params.callFrames.slice(0, MAX_FRAMES).map((frame) => this.#describe(frame)));
      },
    );
    this.#ready = this.#post('Debugger.enable');
  }

  /** Asks for one more. A thread that has heard it and runs no JavaScript has nothing to show; one that has not heard it yet is busy. */
  async look(): Promise<void> {
    await this.#ready;
    if (!this.#closed) await this.#post('Debugger.pause');
  }

  /** A look that waits then ends without one. */
  close(): void {
    this.#closed = true;
    this.#session.disconnect();
  }

  #post(method: string): Promise<void> {
    return new Promise((resolve) => {
      this.#session.post(method, () => resolve());
    });
  }

  #describe({ functionName, location }: CallFrame): string {
    const { scriptId, lineNumber, columnNumber } = location;
    return `${functionName || '(anonymous)'} (${this.#scripts.get(scriptId) ?? ''}:${lineNumber + 1}:${columnNumber + 1})`;
  }
}
