import { createHash } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { SmtpClient } from '../support/smtp-client.js';

/** A message for the run. */
interface Mail {
  readonly id: string;
  readonly recipients: readonly string[];
  readonly text: string;
}

const lineOf = (nth: number): string => `${nth} `.repeat(20).slice(0, 60);

/** Mostly 5 KB; one in fifty 300 KB; one in ten for two domains; one in twenty is deferred first; one in a hundred is refused. */
export function mailOf(nth: number): Mail {
  const id = `${nth}@chaos.example`;
  const recipients = [`to-${nth}@one.example`];
  if (nth % 10 === 3) recipients.push(`second-${nth}@one.example`, `third-${nth}@two.example`);
  if (nth % 20 === 7) recipients.push(`fourth-${nth}@later.example`);
  if (nth % 100 === 51) recipients.push(`fifth-${nth}@gone.example`);
  const body = `${lineOf(nth)}\r\n`.repeat(nth % 50 === 11 ? 5000 : 80);
  const hash = createHash('sha256').update(body).digest('hex');
  return { id, recipients, text: `Message-ID: <${id}>\r\nX-Hash: ${hash}\r\nSubject: ${nth}\r\n\r\n${body}` };
}

export interface Sent {
  /** Messages that were answered with 250. */
  readonly accepted: Map<string, readonly string[]>;
  /** How often a message was handed in without a 250. */
  readonly unanswered: Map<string, number>;
}

const connectionsEach = 6;
/** Longer than a node waits for the database. */
const timeoutMs = 60_000;
const againMs = 300;

interface Sending {
  readonly count: number;
  readonly ms: number;
  /** Filled. */
  readonly sent: Sent;
  readonly signal: AbortSignal;
}

/**
 * Hands all messages to the nodes within `ms`, and again, at the next node, what was not answered with 250, until the
 * signal.
 */
export async function sendAll(ports: readonly number[], { count, ms, sent, signal }: Sending): Promise<void> {
  const again: number[] = [];
  const started = performance.now();
  let next = 0;
  const take = async (): Promise<number | undefined> => {
    for (; sent.accepted.size < count && !signal.aborted; await pause(20)) {
      const nth = again.shift();
      if (nth !== undefined) return nth;
      if (next < count && performance.now() - started >= (next * ms) / count) return next++;
    }
    return undefined;
  };
  const work = async (first: number): Promise<void> => {
    let client: SmtpClient | undefined;
    for (let turn = first; ;) {
      const nth = await take();
      if (nth === undefined) break;
      const port = ports[turn % ports.length] ?? 0;
      const mail = mailOf(nth);
      try {
        client ??= await SmtpClient.greeted({ port, timeoutMs });
        if (await handIn(client, mail, sent)) {
          sent.accepted.set(mail.id, mail.recipients);
          continue;
        }
        client.socket.destroy();
      } catch {
        client?.socket.destroy();
      }
      client = undefined;
      turn += 1;
      again.push(nth);
      await pause(againMs);
    }
    client?.socket.destroy();
  };
  await Promise.all(Array.from({ length: ports.length * connectionsEach }, (_, nth) => work(nth)));
}

async function handIn(client: SmtpClient, { id, recipients, text }: Mail, { unanswered }: Sent): Promise<boolean> {
  if ((await client.command('MAIL FROM:<sender@from.example>')).code !== 250) return false;
  for (const one of recipients) if ((await client.command(`RCPT TO:<${one}>`)).code !== 250) return false;
  const count = unanswered.get(id) ?? 0;
  unanswered.set(id, count + 1);
  if ((await client.data(text)).code !== 250) return false;
  unanswered.set(id, count);
  return true;
}
