import assert from 'node:assert/strict';
import { test } from 'node:test';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { ann, change, openDrafts } from './draft-fixture.js';

test('25 MB pass by in pieces', async (t) => {
  const { drafts, only } = await openDrafts(t, await temporaryFolder(t));
  const { draftId } = await drafts.create(ann, change({ text: 'x' }));
  const start = process.memoryUsage().rss;
  let most = 0;
  const piece = Buffer.alloc(64 * 1024, 'p');
  const large = {
    filename: 'large.bin',
    contentType: 'application/octet-stream',
    async *open() {
      for (let n = 0; n < 400; n++) {
        most = Math.max(most, process.memoryUsage().rss);
        yield await Promise.resolve(piece);
      }
    },
  };
  const { draft } = await drafts.attach(ann, draftId, [large]);
  const saved = await drafts.update(ann, draftId, change({ text: 'y' }));
  most = Math.max(most, process.memoryUsage().rss);
  assert.equal(draft.content.attachments[0]?.size, 400 * piece.length);
  assert.equal(saved.content.attachments[0]?.attachmentId, draft.content.attachments[0]?.attachmentId);
  assert.equal(saved.content.attachments[0]?.size, 400 * piece.length);
  assert.ok((await only()).length > 34_000_000);
  // A parse worker reads the file once; the rest goes through in pieces.
  assert.ok(most - start < 200 * 1024 * 1024, `${most - start} bytes more`);
});
