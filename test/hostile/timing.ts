/**
 * Do answers tell by their time whether a user exists (S21, H24)? Prints medians side by side; asserts nothing, for a
 * machine that does something else tells nothing.
 *   npm run timing                  200 pairs of each question
 *   npm run timing -- --count N
 */
import { parseArgs } from 'node:util';
import { HttpGround, json } from './http-ground.js';
import { password, SmtpGround } from './smtp-ground.js';

const { values } = parseArgs({ options: { count: { type: 'string', default: '200' } } });
const count = Number(values.count);
const known = 'anna@localhost';
const unknown = 'nobody@localhost';

const median = (times: readonly number[]): number => times.toSorted((a, b) => a - b)[times.length >> 1] ?? 0;

async function timed(ask: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await ask();
  return performance.now() - started;
}

/** Asks about both by turns, so that what else the machine does falls on both alike. */
async function compare(title: string, ask: (name: string) => Promise<unknown>): Promise<void> {
  const times: Readonly<Record<'known' | 'unknown', number[]>> = { known: [], unknown: [] };
  for (let n = 0; n < count; n += 1) {
    times.known.push(await timed(() => ask(known)));
    times.unknown.push(await timed(() => ask(unknown)));
  }
  const [first, second] = [median(times.known), median(times.unknown)];
  const difference = ((100 * Math.abs(first - second)) / first).toFixed(1);
  const row = `known ${first.toFixed(3)} ms, unknown ${second.toFixed(3)} ms, difference ${difference} %`;
  process.stdout.write(`${title}: ${row}\n`);
}

const releases: (() => void | Promise<void>)[] = [];
const ending = { after: (release: () => void | Promise<void>) => void releases.push(release) };
const rest = { plugins: { users: { attempts: { limit: 10_000 } } } };

try {
  const smtp = await SmtpGround.start(ending, { limits: { errors: 1_000_000 } }, rest);
  const http = await HttpGround.start(ending, { rest });
  await smtp.addUser(known);
  await http.server.admin.json('/users', { json: { username: known, password } }, 201);
  await compare('S21 AUTH, with its session', async (name) => {
    const client = await smtp.greeted('submission');
    await client.command(`AUTH PLAIN ${Buffer.from(`\0${name}\0wrong`).toString('base64')}`);
    client.close();
  });
  const client = await smtp.greeted();
  await compare('S21 RCPT', async (name) => {
    await client.command('MAIL FROM:<a@sender.example>');
    await client.command(`RCPT TO:<${name}>`);
    await client.command('RSET');
  });
  client.close();
  await compare('H24 POST /users/authenticate', (name) =>
    http.ask('POST', '/users/authenticate', { headers: json, body: JSON.stringify({ username: name, password: 'x' }) }),
  );
  await compare('H24 GET /users/…/exists', (name) => http.ask('GET', `/users/${name}/exists`));
} finally {
  for (const release of releases.toReversed()) await release();
}
