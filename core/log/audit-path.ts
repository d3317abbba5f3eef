import { join } from 'node:path';

export const auditName: RegExp = /^audit(?:\.\d{1,6})?\.log$/;

/** Path of one file of the audit log: 0 is the one that is written, 1 the newest that was set aside. */
export const auditPath = (folder: string, number: number): string =>
  join(folder, number === 0 ? 'audit.log' : `audit.${number}.log`);
