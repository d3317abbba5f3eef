import { undividedShares } from '../../../core/contracts/cluster.js';
import { fileDocuments } from '../../../core/disk/document.js';
import { documentsContract, siteSharesContract } from '../../support/cluster-contracts.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

documentsContract('files', async (t) => {
  const folder = await temporaryFolder(t);
  return () => fileDocuments(folder);
});

siteSharesContract('a server that is alone', () => Promise.resolve(() => undividedShares));
