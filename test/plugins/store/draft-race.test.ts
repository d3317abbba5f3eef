import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { startInProcess } from '../../support/in-process-server.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { ann, change, openDrafts, upload } from './draft-fixture.js';

const rounds = 30;

suite('a draft that is saved again and again', () => {
  test('is found by a reader in the meantime, with its attachment', async (t) => {
    const { drafts, store } = await openDrafts(t, await temporaryFolder(t));
    const { draftId } = await drafts.create(ann, change({ text: 'text 0' }));
    const { added } = await drafts.attach(ann, draftId, [upload('a', 'attached')]);
    const saved = new AbortController();
    const missed: string[] = [];
    const read = async (what: string, task: () => Promise<unknown>): Promise<void> => {
      while (!saved.signal.aborted) await task().catch((error: Error) => missed.push(`${what}: ${error.message}`));
    };
    const reading = [
      read('read', () => drafts.read(ann, draftId)),
      read('attachment', () => drafts.attachment(ann, draftId, added[0]?.attachmentId ?? '')),
      read('list', async () => {
        const all = await store.all(ann);
        if (all.length !== 1) throw new Error(`${all.length} drafts`);
      }),
    ];
    for (let n = 1; n <= rounds; n++) await drafts.update(ann, draftId, change({ text: `text ${n}` }));
    saved.abort();
    await Promise.all(reading);
    assert.deepEqual(missed, []);
  });

  test('is in every list that is made meanwhile', async (t) => {
    const { admin } = await startInProcess(t);
    const path = '/store/localhost/postmaster/drafts';
    const { draftId } = (await admin.json(path, { json: { subject: 'x' } }, 201)) as { draftId: string };
    const saved = new AbortController();
    const missed: unknown[] = [];
    const listing = async (): Promise<void> => {
      while (!saved.signal.aborted) {
        const list = (await admin.json(path)) as { items: readonly { draftId: string }[]; total: number };
        if (list.total !== 1 || list.items[0]?.draftId !== draftId) missed.push(list);
      }
    };
    const lists = [listing(), listing(), listing()];
    for (let n = 1; n <= rounds; n++)
      await admin.json(`${path}/${draftId}`, { method: 'PUT', json: { subject: `${n}` } });
    saved.abort();
    await Promise.all(lists);
    assert.deepEqual(missed, []);
  });
});
