import { chown } from 'node:fs/promises';
import { userInfo } from 'node:os';

/**
 * Who owns mail in tests with other programs. Dovecot never serves the mail of root, so where tests run as root both
 * servers get a number of their own, for which there need be no entry in /etc/passwd.
 */
export interface MailAccount {
  readonly uid: number;
  readonly gid: number;
  /** What goes in front of a command to run it so. */
  readonly launcher: readonly string[];
}

export const isRoot = (): boolean => process.getuid?.() === 0;

const ownNumber = 61_174;

export function mailAccount(): MailAccount {
  const { uid, gid } = userInfo();
  if (uid !== 0) return { uid, gid, launcher: [] };
  // The checkout may be where only root can read.
  const capabilities = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override'];
  const launcher = ['setpriv', `--reuid=${ownNumber}`, `--regid=${ownNumber}`, '--clear-groups', ...capabilities];
  return { uid: ownNumber, gid: ownNumber, launcher };
}

/** Hands the folder over to the account. */
export async function giveTo({ uid, gid }: MailAccount, folder: string): Promise<void> {
  if (isRoot()) await chown(folder, uid, gid);
}

/** For the `skip` option of a test: false for root, else a sentence. */
export function skipWithoutRoot(reason: string): string | false {
  return isRoot() ? false : `This needs root: ${reason}.`;
}
