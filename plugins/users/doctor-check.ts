import { join } from 'node:path';
import { advice, fine, type DoctorCheck } from '../../core/contracts/doctor-check.js';
import { pluralize } from '../../core/text/format.js';
import type { UsersSettings } from './options.js';
import { openUserRecords } from './user-records.js';

/** Checks that users exist, by reading the file, which a running server keeps current. */
export const usersCheck: DoctorCheck<UsersSettings> = {
  group: 'Mail',
  name: 'users',
  async run({ options, configuration }) {
    const records = await openUserRecords(join(configuration.data, options.file));
    const others = records.list().filter(({ username }) => !username.startsWith('postmaster@'));
    if (others.length > 0)
      return [
        fine(
          `${pluralize(others.length, 'user beside postmaster has', 'users beside postmaster have')} a mailbox here.`,
        ),
      ];
    const [domain = 'localhost'] = configuration.domains;
    const todo = `Add the first one: postern user add NAME@${domain}`;
    return [advice(`Nobody${records.count > 0 ? ' but postmaster' : ''} has a mailbox here.`, todo)];
  },
};
