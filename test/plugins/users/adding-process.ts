import { openUserRecords } from '../../../plugins/users/user-records.js';
import { user } from './users-site.js';

/** Adds users to the file of its argument, without end, and prints each name once its addition is durable. */
const records = await openUserRecords(process.argv[2] ?? '');
for (let number = 0; ; number += 1) {
  const username = `u${number}@example.org`;
  await records.add(user(username));
  process.stdout.write(`${username}\n`);
}
