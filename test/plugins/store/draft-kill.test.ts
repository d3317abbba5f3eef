import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { ann, change, openDrafts } from './draft-fixture.js';

const script = fileURLToPath(new URL('drafting-process.js', import.meta.url));

test('a kill while a draft is saved leaves the version before or the one after, with all attachments', async (t) => {
  const data = await temporaryFolder(t);
  const { draftId } = await (await openDrafts(t, data)).drafts.create(ann, change({ text: 'text 0' }));
  let attached = 0;
  for (let round = 0; round < 3; round++) {
    const acknowledged = await saveUntilKilled(data, draftId, randomInt(3, 30));
    const { drafts, files } = await openDrafts(t, data);
    const { content } = await drafts.read(ann, draftId);
    assert.equal((await files()).length, 1);
    const before = attached;
    attached = content.attachments.length;
    const expected = before + Math.floor(acknowledged / 3);
    assert.ok(attached === expected || attached === expected + 1, `${attached} attachments for ${expected}`);
    const shown = Number(/^text (\d+)$/.exec(content.text ?? '')?.[1]);
    assert.ok(shown >= acknowledged - 1 && shown <= acknowledged + 1, `version ${shown} after ${acknowledged}`);
  }
});

/** The last version that was acknowledged before the kill. */
async function saveUntilKilled(data: string, draftId: string, enough: number): Promise<number> {
  const child = spawn(process.execPath, [script, data, draftId], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  let last = 0;
  for await (const line of createInterface({ input: child.stdout })) {
    last = Number(line);
    if (last === enough) child.kill('SIGKILL');
  }
  assert.deepEqual(await exited, [null, 'SIGKILL']);
  return last;
}
