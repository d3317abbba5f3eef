import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pino } from 'pino';
import { systemClock } from '../../../core/clock.js';
import { undividedShares } from '../../../core/contracts/cluster.js';
import { fileDocuments } from '../../../core/disk/document.js';
import { FileAnswers } from '../../../core/http/shell/idempotency.js';
import { auditPath } from '../../../core/log/file.js';
import { openUserRecords } from '../../../plugins/users/user-records.js';
import { readAudit } from '../../../plugins/config/audit-trail.js';
import {
  auditReaderContract,
  documentsContract,
  keptAnswersContract,
  siteSharesContract,
  userRecordsContract,
} from '../../support/cluster-contracts.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

documentsContract('files', async (t) => {
  const folder = await temporaryFolder(t);
  return () => fileDocuments(folder);
});

siteSharesContract('a server that is alone', () => Promise.resolve(() => undividedShares));

keptAnswersContract('files', async (t) => {
  const folder = await temporaryFolder(t);
  return () => {
    const answers = new FileAnswers({ folder, clock: systemClock, log: pino({ level: 'silent' }) });
    answers.load();
    return answers;
  };
});

auditReaderContract('files', async (t, entries) => {
  const folder = await temporaryFolder(t);
  const lines = entries.map((entry) => `${JSON.stringify(entry)}\n`);
  await writeFile(auditPath(folder, 1), lines.slice(0, 5).join(''));
  await writeFile(auditPath(folder, 0), lines.slice(5).join(''));
  return { node: 'mx1', read: (query) => readAudit(folder, query) };
});

userRecordsContract('a file', async (t) => {
  const file = join(await temporaryFolder(t), 'users.json');
  return () => openUserRecords(file);
});
