import type { Ending } from '../support/ending.js';
import { HttpFixture, json } from './http-fixture.js';
import { password, SmtpFixture } from './smtp-fixture.js';

const known = 'anna@localhost';
const unknown = 'nobody@localhost';

/** What is asked about a user; the title names it. */
export type Question = readonly [title: string, ask: (name: string) => Promise<unknown>];

/** Medians in milliseconds. */
export interface TimedUsers {
  readonly known: number;
  readonly unknown: number;
}

/** Of what the times must not tell whether a user exists, and of what the answer itself may tell it. */
export interface Questions {
  readonly secret: readonly Question[];
  readonly told: readonly Question[];
}

/** Servers with a user, which take as many wrong passwords as are tried. */
export async function openQuestions(ending: Ending): Promise<Questions> {
  const rest = { plugins: { users: { attempts: { limit: 10_000 } } } };
  const smtp = await SmtpFixture.start(ending, { limits: { errors: 10_000 } }, rest);
  const http = await HttpFixture.start(ending, { rest });
  await smtp.addUser(known);
  await http.server.admin.json('/users', { json: { username: known, password } }, 201);
  return {
    secret: [
      [
        'S21 AUTH, with its session',
        async (name) => {
          const client = await smtp.greeted('submission');
          await client.command(`AUTH PLAIN ${Buffer.from(`\0${name}\0wrong`).toString('base64')}`);
          client.close();
        },
      ],
      [
        'H24 POST /users/authenticate',
        (name) => {
          const body = JSON.stringify({ username: name, password: 'x' });
          return http.ask('POST', '/users/authenticate', { headers: json, body });
        },
      ],
    ],
    told: [
      [
        'S21 RCPT, with its session',
        async (name) => {
          const client = await smtp.greeted();
          await client.command('MAIL FROM:<a@sender.example>');
          await client.command(`RCPT TO:<${name}>`);
          client.close();
        },
      ],
      ['H24 GET /users/…/exists', (name) => http.ask('GET', `/users/${name}/exists`)],
    ],
  };
}

const median = (times: readonly number[]): number => times.toSorted((a, b) => a - b)[times.length >> 1] ?? 0;

async function timed(ask: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await ask();
  return performance.now() - started;
}

/** Asks about both by turns, so that what else the machine does falls on both alike. */
export async function timeUsers(ask: (name: string) => Promise<unknown>, count: number): Promise<TimedUsers> {
  const times: Readonly<Record<keyof TimedUsers, number[]>> = { known: [], unknown: [] };
  for (let n = 0; n < count; n += 1) {
    times.known.push(await timed(() => ask(known)));
    times.unknown.push(await timed(() => ask(unknown)));
  }
  return { known: median(times.known), unknown: median(times.unknown) };
}

/** Parts of the time for a known user. */
export const differenceOf = (times: TimedUsers): number => Math.abs(times.known - times.unknown) / times.known;
