import type { ClientAnswer } from './client-answer.js';
import { message } from './message.js';
import type { SmtpTestSession } from './smtp-session.js';
import { userPassword } from './stand-ins.js';

/** Who sends. */
export interface Client {
  /** Address of the client; one that is not loopback, so that limits hold for it. */
  readonly ip?: string;
  /** Name in EHLO. */
  readonly hello?: string;
  /** Signs in as that mail user first, at the submission listener. */
  readonly user?: string;
  /** Of the user; every user of the test has the password `password`. */
  readonly password?: string;
  /** Says STARTTLS first. */
  readonly tls?: boolean;
}

export interface Sender extends Client {
  /** Reverse-path; empty for the null one. */
  readonly from?: string;
}

export interface RecipientQuestion extends Sender {
  readonly to?: string;
}

export interface Sending extends Sender {
  /** One recipient or several; those that are refused are left out, as clients do. */
  readonly to?: string | readonly string[];
  /** The message; `message()` of sender and recipients if absent. */
  readonly eml?: string | Uint8Array;
}

/** EHLO, STARTTLS and AUTH. */
export async function begin(session: SmtpTestSession, client: Client): Promise<ClientAnswer> {
  const { hello = 'client.example.com', user, password = userPassword, tls = false } = client;
  const steps = [
    () => session.greeting,
    () => session.send(`EHLO ${hello}`),
    ...(tls ? [() => session.startTls(), () => session.send(`EHLO ${hello}`)] : []),
    ...(user === undefined ? [] : [() => session.signIn(user, password)]),
  ];
  return inTurn(steps);
}

export function mail(session: SmtpTestSession, sender: Sender): Promise<ClientAnswer> {
  const { from = 'anna@example.com' } = sender;
  const parameters = isAscii(from) ? '' : ' SMTPUTF8';
  return inTurn([() => begin(session, sender), () => session.send(`MAIL FROM:<${from}>${parameters}`)]);
}

export function rcpt(session: SmtpTestSession, question: RecipientQuestion): Promise<ClientAnswer> {
  const { to = 'bob@example.org' } = question;
  return inTurn([() => mail(session, question), () => session.send(`RCPT TO:<${to}>`)]);
}

/** The message, for the recipients that were accepted. */
export async function data(session: SmtpTestSession, sending: Sending): Promise<ClientAnswer> {
  const { from, to = 'bob@example.org', eml = message({ ...(from !== undefined && { from }), to }) } = sending;
  const begun = await mail(session, sending);
  if (begun.code >= 400) return begun;
  const answers: ClientAnswer[] = [];
  for (const recipient of [to].flat()) answers.push(await session.send(`RCPT TO:<${recipient}>`));
  const [refused = begun] = answers;
  return answers.some(({ code }) => code < 300) ? session.data(eml) : refused;
}

/** Up to the first that is refused. */
async function inTurn(steps: readonly (() => Promise<ClientAnswer>)[]): Promise<ClientAnswer> {
  const [first, ...others] = steps;
  if (first === undefined) throw new Error('there is nothing to say');
  let answer = await first();
  for (const step of others) if (answer.code < 400) answer = await step();
  return answer;
}

// eslint-disable-next-line no-control-regex
const isAscii = (text: string): boolean => /^[\x00-\x7f]*$/.test(text);
