import { request } from 'node:http';
import { type ReceivedReply, SmtpClient } from '../support/smtp-client.js';
import { ordinaryMail, password, pathOfMailbox, quietMailbox, type Target, visitors, watcher } from './victim.js';

/** What somebody does who only wants to work. */
export const activities = ['page', 'sign-in', 'mail', '250'] as const;
/** `mail`: from the connection to the 250 of its one message. `250`: in a session that is kept, from the dot to the 250. */
export type Activity = (typeof activities)[number];

const everyMs: Readonly<Record<Activity, number>> = { page: 50, 'sign-in': 500, mail: 50, '250': 50 };
/** Of one kind at a time; a session that is kept has one message at a time. */
const maxPending: Readonly<Record<Activity, number>> = { page: 40, 'sign-in': 20, mail: 30, '250': 1 };
const pageAddress = '127.0.2.1';
const signInAddress = '127.0.2.2';
const mailAddress = '127.0.2.3';
/** Nobody waits longer. */
export const maxWaitMs = 30_000;

/** Times of one activity, in milliseconds, and what went wrong. */
export class Series {
  readonly ms: number[] = [];
  readonly failures: string[] = [];
  readonly #pending = new Set<Promise<void>>();

  /**
   * A refusal has no time; who waited as long as anybody would has waited that long.
   *
   * @param work resolves to the time that it took
   */
  add(work: () => Promise<number>): Promise<void> {
    const began = performance.now();
    const sample = work()
      .then((ms) => void this.ms.push(ms))
      .catch((error: unknown) => {
        const waited = performance.now() - began;
        if (waited >= maxWaitMs) this.ms.push(waited);
        this.failures.push(error instanceof Error ? error.message : String(error));
      })
      .finally(() => this.#pending.delete(sample));
    this.#pending.add(sample);
    return sample;
  }

  async settled(): Promise<void> {
    await Promise.all(this.#pending);
  }

  /** The value that this share of the times does not exceed; NaN without any. */
  percentile(share: number): number {
    const sorted = this.ms.toSorted((a, b) => a - b);
    return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
  }
}

export type Measurement = Readonly<Record<Activity, Series>>;

const emptyMeasurement = (): Measurement => ({
  page: new Series(),
  'sign-in': new Series(),
  mail: new Series(),
  '250': new Series(),
});

/** Opens pages, signs in and sends mail at a steady pace, each from an address of its own, and notes how long it takes. */
export class Bystander {
  readonly #target: Target;
  readonly #cookie: string;
  readonly #timers: readonly NodeJS.Timeout[];
  #measurement = emptyMeasurement();
  /** The session that is kept. */
  #beforeDot: Promise<SmtpClient> | undefined;
  readonly #pending: Record<Activity, number> = { page: 0, 'sign-in': 0, mail: 0, '250': 0 };
  readonly #begun: Record<Activity, number> = { page: 0, 'sign-in': 0, mail: 0, '250': 0 };

  private constructor(target: Target, cookie: string) {
    this.#target = target;
    this.#cookie = cookie;
    this.#timers = activities.map((activity) => setInterval(() => void this.#begin(activity), everyMs[activity]));
  }

  static async begin(target: Target): Promise<Bystander> {
    return new Bystander(target, await signIn(target, watcher, pageAddress));
  }

  /** What begins from now on belongs to the measurement that is returned. */
  measure(): Measurement {
    this.#measurement = emptyMeasurement();
    return this.#measurement;
  }

  stop(): void {
    for (const timer of this.#timers) clearInterval(timer);
    void this.#beforeDot?.then((client) => client.close()).catch(() => undefined);
  }

  async #begin(activity: Activity): Promise<void> {
    if (this.#pending[activity] >= maxPending[activity]) return;
    this.#pending[activity] += 1;
    await this.#measurement[activity].add(() => this.#do(activity));
    this.#pending[activity] -= 1;
  }

  async #do(activity: Activity): Promise<number> {
    const turn = this.#begun[activity]++;
    if (activity === '250') return this.#sendInSession();
    const began = performance.now();
    if (activity === 'page') await this.#openPage(turn);
    else if (activity === 'mail') await this.#sendMail();
    else await signIn(this.#target, visitors[turn % visitors.length] ?? '', signInAddress);
    return performance.now() - began;
  }

  /** In turn the overview, a folder and a message. */
  async #openPage(turn: number): Promise<void> {
    const { messageIds, httpPort } = this.#target;
    const folder = `${pathOfMailbox}/folders/INBOX`;
    const message = `${folder}/messages/${encodeURIComponent(messageIds[turn % messageIds.length] ?? '')}`;
    const [what, path] = (
      [
        ['overview', '/'],
        ['folder', folder],
        ['message', message],
      ] as const
    )[turn % 3] ?? ['', '/'];
    const headers = { Accept: 'text/html', Cookie: this.#cookie };
    const { status } = await ask({ port: httpPort, path, from: pageAddress, headers });
    if (status !== 200) throw new Error(`${what}: ${status}`);
  }

  async #sendMail(): Promise<void> {
    const client = await openSession(this.#target.mxPort);
    try {
      await sendDot(await sendText(client));
    } finally {
      client.close();
    }
  }

  /** The message lies there but for its dot. A server that takes long to get there makes the dot late. */
  async #sendInSession(): Promise<number> {
    const began = performance.now();
    this.#beforeDot ??= openSession(this.#target.mxPort).then(sendText);
    try {
      const client = await this.#beforeDot;
      this.#beforeDot = undefined;
      await sendDot(client);
      this.#beforeDot = sendText(client);
      // The next message meets what went wrong.
      this.#beforeDot.catch(() => undefined);
    } catch (error) {
      this.#beforeDot = undefined;
      throw error;
    }
    return performance.now() - began;
  }
}

async function openSession(port: number): Promise<SmtpClient> {
  const client = await SmtpClient.connect({ port, localAddress: mailAddress, timeoutMs: maxWaitMs });
  try {
    assertReply(await client.readReply(), 220);
    assertReply(await client.command('EHLO client.example'), 250);
  } catch (error) {
    client.close();
    throw error;
  }
  return client;
}

/** A message up to its dot. Closes the session where that fails. */
async function sendText(client: SmtpClient): Promise<SmtpClient> {
  try {
    for (const reply of await client.pipeline(['MAIL FROM:<a@client.example>', `RCPT TO:<${quietMailbox}>`])) {
      assertReply(reply, 250);
    }
    assertReply(await client.command('DATA'), 354);
    client.write(ordinaryMail(0));
    return client;
  } catch (error) {
    client.close();
    throw error;
  }
}

async function sendDot(client: SmtpClient): Promise<void> {
  try {
    client.write('.\r\n');
    assertReply(await client.readReply(), 250);
  } catch (error) {
    client.close();
    throw error;
  }
}

function assertReply({ code, raw }: ReceivedReply, wanted: number): void {
  if (code !== wanted) throw new Error(raw.trim());
}

interface Asked {
  readonly port: number;
  readonly path: string;
  readonly from: string;
  readonly headers: Readonly<Record<string, string>>;
  /** A form. */
  readonly form?: string;
}

/** One request on a connection of its own. */
function ask({ port, path, from, headers, form }: Asked): Promise<{ status: number; cookie: string }> {
  return new Promise((resolve, reject) => {
    const asked = request(
      {
        host: '127.0.0.1',
        port,
        path,
        localAddress: from,
        method: form === undefined ? 'GET' : 'POST',
        agent: false,
        signal: AbortSignal.timeout(maxWaitMs),
        headers: { ...headers, ...(form !== undefined && { 'Content-Type': 'application/x-www-form-urlencoded' }) },
      },
      (response) => {
        const [cookie = ''] = (response.headers['set-cookie']?.[0] ?? '').split(';', 1);
        response.on('error', reject).on('end', () => resolve({ status: response.statusCode ?? 0, cookie }));
        response.resume();
      },
    );
    asked.on('error', (error) => reject(error.name === 'AbortError' ? new Error('no answer') : error));
    asked.end(form);
  });
}

/** The cookie of the session. */
async function signIn({ httpPort: port }: Target, username: string, from: string): Promise<string> {
  const form = new URLSearchParams({ username, password }).toString();
  const { status, cookie } = await ask({ port, path: '/sign-in', from, headers: { Accept: 'text/html' }, form });
  if (status !== 303) throw new Error(`the form: ${status}`);
  return cookie;
}
