import { createInterface, type Interface } from 'node:readline';
import { Writable } from 'node:stream';
import { hashPassword, passwordComplaint } from '../auth/password.js';
import { startError } from '../problem.js';
import type { Terminal } from './command.js';

/** The standard streams of the process. */
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
    if (this.interactive) process.stdout.write(question);
    return this.#nextLine();
  }

  async askSecret(question: string): Promise<string> {
    if (this.interactive) process.stdout.write(question);
    this.#hidden = true;
    try {
      return await this.#nextLine();
    } finally {
      this.#hidden = false;
      if (this.interactive) process.stdout.write('\n');
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
        if (!this.#hidden) process.stdout.write(chunk);
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
