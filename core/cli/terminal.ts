import { createInterface, type Interface } from 'node:readline';
import { Writable } from 'node:stream';
import { hashPassword, passwordComplaint } from '../auth/password.js';
import { type Clock, systemClock } from '../clock.js';
import { startError } from '../problem.js';
import type { Terminal } from './command.js';

/** Questions go to the standard error: what a command prints may go into a file or a pipe. */
export class ProcessTerminal implements Terminal {
  readonly interactive = process.stdin.isTTY;
  readonly #lines: string[] = [];
  readonly #waiting: ((line: string) => void)[] = [];
  #reader: Interface | undefined;
  #hidden = false;
  #ended = false;

  print(text: string): void {
    process.stdout.write(`${text}\n`);
  }

  ask(question: string): Promise<string> {
    if (this.interactive) process.stderr.write(question);
    return this.#nextLine();
  }

  async askSecret(question: string): Promise<string> {
    if (this.interactive) process.stderr.write(question);
    this.#hidden = true;
    try {
      return await this.#nextLine();
    } finally {
      this.#hidden = false;
      if (this.interactive) process.stderr.write('\n');
    }
  }

  close(): void {
    this.#reader?.close();
  }

  #nextLine(): Promise<string> {
    this.#reader ??= this.#open();
    const line = this.#lines.shift();
    if (line !== undefined) return Promise.resolve(line);
    if (this.#ended) return Promise.resolve('');
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #open(): Interface {
    const echo = new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        if (!this.#hidden) process.stderr.write(chunk);
        done();
      },
    });
    const reader = createInterface({ input: process.stdin, output: echo, terminal: this.interactive });
    reader.on('line', (line) => {
      const next = this.#waiting.shift();
      if (next === undefined) this.#lines.push(line);
      else next(line);
    });
    reader.on('close', () => {
      this.#ended = true;
      for (const next of this.#waiting.splice(0)) next('');
    });
    reader.on('SIGINT', () => process.kill(process.pid, 'SIGINT'));
    return reader;
  }
}

/** Shorter work shows nothing. */
const progressAfterMs = 1000;
const progressEveryMs = 250;

/** What a test has in the place of the standard error and the time. */
interface ProgressPlace {
  readonly output: Pick<NodeJS.WriteStream, 'isTTY' | 'columns'> & { write(text: string): unknown };
  readonly clock: Clock;
}

let isShowing = false;

/**
 * Shows on a terminal what the work does and for how long: one line of the standard error, which is written anew and
 * removed at the end, or by `show('')`. Elsewhere it writes nothing. Of two at once, the outer one shows.
 */
export async function withProgress<T>(
  about: string,
  work: (show: (about: string) => void) => Promise<T>,
  { output, clock }: ProgressPlace = { output: process.stderr, clock: systemClock },
): Promise<T> {
  if (!output.isTTY || isShowing) return work(() => undefined);
  const startedAt = clock.monotonic();
  let [text, shown] = [about, ''];
  const write = (line: string): void => {
    // Spaces instead of a control sequence: a terminal may know none.
    output.write(`\r${line.padEnd(shown.length)}`);
    shown = line;
  };
  const remove = (): void => {
    if (shown === '') return;
    write('');
    output.write('\r');
  };
  const timer = setInterval(() => {
    const passed = clock.monotonic() - startedAt;
    if (passed < progressAfterMs || text === '') return;
    write(`${text} … ${Math.floor(passed / 1000)} s`.slice(0, (output.columns || 80) - 1));
  }, progressEveryMs);
  isShowing = true;
  try {
    return await work((next) => {
      text = next;
      if (next === '') remove();
    });
  } finally {
    clearInterval(timer);
    isShowing = false;
    remove();
  }
}

/** Runs work that Ctrl-C only asks to end; pressed again, it ends the process. */
export async function untilInterrupted<T>(work: (interrupted: AbortSignal) => Promise<T>): Promise<T> {
  const abort = new AbortController();
  const interrupt = (): void => abort.abort();
  process.once('SIGINT', interrupt);
  try {
    return await work(abort.signal);
  } finally {
    process.off('SIGINT', interrupt);
  }
}

/** On a terminal the password is typed twice; from a pipe it is one line. Empty for none. */
export async function askNewPassword(terminal: Terminal): Promise<string> {
  const password = await terminal.askSecret('Password: ');
  if (terminal.interactive && password !== '' && (await terminal.askSecret('Repeat the password: ')) !== password) {
    throw startError('The two passwords differ: nothing was changed.');
  }
  return password;
}

/** `postern password hash`: a `passwordHash` for an account in the configuration. */
export async function newPasswordHash(): Promise<string> {
  const terminal = new ProcessTerminal();
  try {
    const password = await askNewPassword(terminal);
    if (password === '') throw startError('No password was given.');
    const complaint = passwordComplaint(password, '');
    if (complaint !== undefined) throw startError(complaint);
    return await hashPassword(password);
  } finally {
    terminal.close();
  }
}
