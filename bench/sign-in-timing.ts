import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { systemClock } from '../core/clock.js';
import { parseAddress } from '../core/mime/address.js';
import { hashPassword } from '../core/auth/password.js';
import { UserDirectory } from '../plugins/users/directory.js';
import { UsersOptions } from '../plugins/users/options.js';
import { openUserRecords } from '../plugins/users/user-records.js';

/**
 * Measures whether time tells a known user from an unknown one: `node dist/bench/sign-in-timing.js [SIGN-INS] [LOOKUPS]`.
 * Known and unknown take turns, so that what else the machine does falls on both.
 */
const signIns = Number(process.argv[2] ?? 200);
const lookups = Number(process.argv[3] ?? 200_000);

interface Pair {
  readonly known: number[];
  readonly unknown: number[];
}

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

async function timed(work: () => unknown): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

function report(what: string, { known, unknown }: Pair): void {
  const percent = ((median(unknown) - median(known)) / median(known)) * 100;
  const line = (values: readonly number[]) =>
    `median ${median(values).toFixed(4)} ms, mean ${mean(values).toFixed(4)} ms`;
  process.stdout.write(
    `${what}\n  known    ${line(known)}\n  unknown  ${line(unknown)}\n  medians differ by ${percent.toFixed(2)} %\n`,
  );
}

const folder = await mkdtemp(join(tmpdir(), 'postern-timing-'));
try {
  const file = join(folder, 'users.json');
  const record = { aliases: [], quota: null, disabled: false, createdAt: new Date().toISOString() };
  const passwordHash = await hashPassword('the right one');
  await writeFile(file, JSON.stringify({ users: [{ ...record, username: 'anna@example.org', passwordHash }] }));
  const directory = new UserDirectory({
    records: await openUserRecords(file),
    settings: UsersOptions.parse({}),
    configuration: { domains: ['example.org'], hostname: 'mx.example.org' },
    clock: systemClock,
  });

  const checked: Pair = { known: [], unknown: [] };
  for (let count = 0; count < signIns; count += 1) {
    checked.known.push(await timed(() => directory.authenticate('anna@example.org', 'a wrong one')));
    checked.unknown.push(await timed(() => directory.authenticate('ruth@example.org', 'a wrong one')));
  }
  report(`${signIns} wrong passwords each`, checked);

  const looked: Pair = { known: [], unknown: [] };
  const [anna, ruth] = [parseAddress('anna@example.org'), parseAddress('ruth@example.org')];
  for (let count = 0; count < lookups; count += 1) {
    looked.known.push(await timed(() => directory.lookup(anna)));
    looked.unknown.push(await timed(() => directory.lookup(ruth)));
  }
  report(`${lookups} recipients each`, looked);
} finally {
  await rm(folder, { recursive: true, force: true });
}
