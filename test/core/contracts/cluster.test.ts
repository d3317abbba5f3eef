import { fileDocuments } from '../../../core/disk/document.js';
import { documentsContract } from '../../support/cluster-contracts.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

documentsContract('files', async (t) => {
  const folder = await temporaryFolder(t);
  return () => fileDocuments(folder);
});
