import { Session } from 'node:inspector';

/** Frames kept of one stack. */
const maxFrames = 60;

interface CallFrame {
  readonly functionName: string;
  readonly location: { readonly scriptId: string; readonly lineNumber: number; readonly columnNumber: number };
}

/**
 * Reads stacks of the main thread from a worker: each sample pauses that thread for a moment.
 *
 * Such a worker must not end by itself: the main thread terminates it after a message that is sent after `close`. Until
 * then Node may still answer the session, and aborts the process when the worker is exiting at that moment.
 */
export class MainStacks {
  readonly #session = new Session();
  readonly #scripts = new Map<string, string>();
  readonly #ready: Promise<void>;
  #closed = false;
  /** Innermost frame first: `function (file:line:column)`. */
  readonly stacks: (readonly string[])[] = [];

  constructor() {
    this.#session.connectToMainThread();
    this.#session.on(
      'Debugger.scriptParsed',
      ({ params }: { readonly params: { readonly scriptId: string; readonly url: string } }) => {
        // A reloaded file has a query in its URL.
        this.#scripts.set(params.scriptId, params.url.replace(/\?.*$/, ''));
      },
    );
    this.#session.on(
      'Debugger.paused',
      ({ params }: { readonly params: { readonly callFrames: readonly CallFrame[] } }) => {
        // A late event finds the session closed; the main thread continues by itself.
        if (this.#closed) return;
        this.#session.post('Debugger.resume');
        this.stacks.push(params.callFrames.slice(0, maxFrames).map((frame) => this.#describe(frame)));
      },
    );
    this.#ready = this.#post('Debugger.enable');
  }

  /** Requests one stack. An idle thread has none to show; a busy one may answer late. */
  async sample(): Promise<void> {
    await this.#ready;
    if (!this.#closed) await this.#post('Debugger.pause');
  }

  /** A pending sample ends without a stack. */
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
