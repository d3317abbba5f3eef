import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { dkimVerify } from 'mailauth/lib/dkim/verify.js';
import nodemailer from 'nodemailer';
import { SMTPServer } from 'smtp-server';
import { atEnd, type Ending } from '../support/ending.js';
import { Output } from '../support/output.js';
import { Postfix } from '../support/postfix.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { untilTrue } from '../support/until.js';
import { changed } from './example.js';

/** One command of an operator. */
export interface RoadStep {
  readonly command: string;
  readonly seconds: number;
}

const user = 'anna@example.org';
const password = 'correct horse battery';

/**
 * Goes the road of a new operator: from an empty folder and a packed tarball to the first signed mail that another server, a
 * Postfix that refuses mail without good DKIM signatures, has accepted. The records that it verifies with are those that
 * `postern init` prints.
 *
 * @param npm options of `npm install`, such as a registry
 * @returns each command with its time, and the selectors whose signatures are good
 */
export async function setupRoad(test: Ending, tarball: string, npm: readonly string[] = []) {
  const folder = await temporaryFolder(test);
  const prefix = await temporaryFolder(test);
  const road = new Road(test, folder, join(prefix, 'bin', 'postern'));
  await road.run('npm', ['install', '--global', '--prefix', prefix, '--no-audit', '--no-fund', ...npm, tarball]);
  await road.postern(['init', 'example.org']);
  const receiver = await VerifyingServer.start(test, await road.posternUntimed(['zone', '--json']));
  await onLoopback(join(folder, 'postern.json5'), receiver.port);
  const ready = await road.start();
  await road.postern(['user', 'add', user], `${password}\n`);
  const port = Number(/SMTP submission\s+\S+:(\d+)$/m.exec(ready)?.[1]);
  await road.timed('the first mail, from a mail program to the 250 of the other server', async () => {
    const client = nodemailer.createTransport({
      port,
      host: '127.0.0.1',
      requireTLS: true,
      auth: { user, pass: password },
      tls: { rejectUnauthorized: false },
    });
    await client.sendMail({ from: user, to: 'bob@receiver.example', subject: 'The first mail', text: 'It works.' });
    await untilTrue('the queue has delivered it', async () =>
      (await road.posternUntimed(['queue', 'list', 'state=delivered'])).includes('bob@receiver.example'),
    );
  });
  return { steps: road.steps, verified: receiver.verified };
}

class Road {
  readonly steps: RoadStep[] = [];
  readonly #test: Ending;
  readonly #folder: string;
  readonly #program: string;

  constructor(test: Ending, folder: string, program: string) {
    this.#test = test;
    this.#folder = folder;
    this.#program = program;
  }

  async timed<T>(command: string, work: () => Promise<T>): Promise<T> {
    const began = performance.now();
    const result = await work();
    this.steps.push({ command, seconds: (performance.now() - began) / 1000 });
    return result;
  }

  run(program: string, words: readonly string[]): Promise<string> {
    return this.timed([program, words[0]].join(' '), () => this.#output(program, words));
  }

  postern(words: readonly string[], input = ''): Promise<string> {
    return this.timed(['postern', ...words].join(' '), () => this.#output(this.#program, words, input));
  }

  posternUntimed(words: readonly string[]): Promise<string> {
    return this.#output(this.#program, words);
  }

  /** Resolves with what it prints until it is ready; stopped when the test ends. */
  start(): Promise<string> {
    return this.timed('postern start', async () => {
      const child = this.#spawn(this.#program, ['start']);
      const output = new Output(child);
      const exit = once(child, 'exit');
      atEnd(this.#test, async () => {
        child.kill('SIGKILL');
        await exit;
      });
      await output.find(/Add a user/);
      return output.stdout;
    });
  }

  async #output(program: string, words: readonly string[], input = ''): Promise<string> {
    const child = this.#spawn(program, words);
    const output = new Output(child);
    child.stdin.end(input);
    const [code] = (await once(child, 'close')) as [number | null];
    if (code !== 0)
      throw new Error(`${program} ${words.join(' ')} ends with ${code}: ${output.stdout}${output.stderr}`);
    return output.stdout;
  }

  #spawn(program: string, words: readonly string[]) {
    const { PATH = '', HOME = this.#folder } = process.env;
    return spawn(program, words, { cwd: this.#folder, env: { PATH, HOME }, stdio: 'pipe' });
  }
}

/** On a machine of its own nothing is changed: here others may have the ports, and no DNS leads to the other server. */
async function onLoopback(file: string, port: number): Promise<void> {
  const route = { mx: ['127.0.0.1'], port, domains: ['receiver.example'] };
  const text = changed(await readFile(file, 'utf8'), {
    "'0.0.0.0'": "'127.0.0.1'",
    'port: 25,': 'port: 0,',
    'port: 587,': 'port: 0,',
    'port: 8080 ': 'port: 0 ',
    "'client-queue': {": `'client-queue': { routes: { receiver: ${JSON.stringify(route)} },`,
  });
  await writeFile(file, text);
}

interface Zone {
  readonly records: readonly { readonly name: string; readonly type: string; readonly value: string }[];
}

/** A Postfix whose filter before the queue verifies DKIM with the given records, and refuses what is not well signed. */
class VerifyingServer {
  readonly port: number;
  /** Selectors of good signatures. */
  readonly verified: readonly string[];

  private constructor(port: number, verified: readonly string[]) {
    this.port = port;
    this.verified = verified;
  }

  static async start(test: Ending, zones: string): Promise<VerifyingServer> {
    const records = (JSON.parse(zones) as readonly Zone[]).flatMap(({ records }) => records);
    const resolver = (name: string): Promise<string[][]> => {
      const texts = records.filter((record) => record.name === name && record.type === 'TXT');
      return texts.length > 0 ? Promise.resolve(texts.map(({ value }) => [value])) : Promise.reject(new Error('none'));
    };
    const verified: string[] = [];
    const verify = async (message: Buffer): Promise<Error | null> => {
      const { results } = await dkimVerify(message, { resolver });
      const good = results.filter(({ status }) => status.result === 'pass');
      verified.push(...good.map(({ selector = '' }) => selector));
      const isGood = results.length > 0 && good.length === results.length;
      return isGood ? null : Object.assign(new Error('5.7.20 no good DKIM signature'), { responseCode: 550 });
    };
    const filter = new SMTPServer({
      authOptional: true,
      disabledCommands: ['STARTTLS', 'AUTH'],
      onData: (stream, _session, done) => {
        buffer(stream)
          .then(verify)
          .then((refusal) => done(refusal), done);
      },
    });
    const listening = filter.listen(0, '127.0.0.1');
    await once(listening, 'listening');
    atEnd(test, () => new Promise<void>((resolve) => filter.close(() => resolve())));
    const { port } = listening.address() as AddressInfo;
    const postfix = await Postfix.start(test, 9, { settings: [`smtpd_proxy_filter = 127.0.0.1:${port}`] });
    return new VerifyingServer(postfix.port, verified);
  }
}
