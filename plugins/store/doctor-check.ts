import { resolve } from 'node:path';
import { stat } from 'node:fs/promises';
import { fine, skipped, trouble, type DoctorCheck } from '../../core/contracts/doctor-check.js';
import type { StoreSettings } from './options.js';

/** Messages are hard-linked into mailboxes, which needs one file system. */
export const mailFolderCheck: DoctorCheck<StoreSettings> = {
  group: 'Data folder',
  name: 'mail-folder',
  async run({ options, configuration: { data } }) {
    const path = resolve(data, options.root);
    const [mail, home] = await Promise.all([path, data].map((folder) => stat(folder).catch(() => undefined)));
    if (mail === undefined || home === undefined)
      return [skipped(`The folder of the mailboxes, ${path}, is not there yet.`)];
    if (mail.dev === home.dev) return [fine(`The mailboxes in ${path} share the file system of the data folder.`)];
    const is = `The mailboxes in ${path} are on another file system than the data folder ${data}: the server does not start.`;
    return [trouble(is, 'Put both on one: messages are linked from one to the other.')];
  },
};
