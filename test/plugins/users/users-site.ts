import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pino } from 'pino';
import { type Clock, systemClock } from '../../../core/clock.js';
import { isProblem, type ProblemName } from '../../../core/problem.js';
import { UserDirectory } from '../../../plugins/users/directory.js';
import { UsersOptions, type UsersSettings } from '../../../plugins/users/options.js';
import { LocalRoster } from '../../../plugins/users/roster.js';
import { type FileUserRecords, openUserRecords } from '../../../plugins/users/user-records.js';
import type { UserRecord } from '../../../core/contracts/user-records.js';
import type { Ending } from '../../support/ending.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

export const silent = pino({ level: 'silent' });

/** A user of the fixtures; whatever is not given is usual. */
export function user(username: string, given: Partial<UserRecord> = {}): UserRecord {
  return {
    username,
    passwordHash: null,
    aliases: [],
    quota: null,
    disabled: false,
    createdAt: '2026-01-02T03:04:05.000Z',
    ...given,
  };
}

export interface UsersSite {
  readonly folder: string;
  readonly file: string;
  readonly records: FileUserRecords;
  readonly settings: UsersSettings;
  readonly directory: UserDirectory;
  readonly roster: LocalRoster;
}

export interface SiteInput {
  readonly users?: readonly UserRecord[];
  readonly options?: object;
  readonly domains?: readonly string[];
  readonly hostname?: string;
  readonly clock?: Clock;
}

/** The nouns of the plugin over a `users.json` in a folder of its own. */
export async function openSite(test: Ending, input: SiteInput = {}): Promise<UsersSite> {
  const folder = await temporaryFolder(test);
  const file = join(folder, 'users.json');
  if (input.users !== undefined) await writeFile(file, JSON.stringify({ users: input.users }));
  const { domains = ['example.org', 'example.net'], hostname = 'mx.example.org', clock = systemClock } = input;
  const configuration = { domains, hostname };
  const settings = UsersOptions.parse(input.options ?? {});
  const records = await openUserRecords(file);
  const directory = new UserDirectory({ records, settings, configuration, clock });
  const roster = new LocalRoster({ records, configuration, postmaster: () => directory.postmasterName(), clock });
  return { folder, file, records, settings, directory, roster };
}

/** For `assert.rejects` and `assert.throws`. */
export const isProblemNamed = (name: ProblemName) => (error: unknown) => isProblem(error) && error.problem === name;
