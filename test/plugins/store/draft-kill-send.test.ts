import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { nodeFiles } from '../../../core/disk/file-layer.js';
import type { DraftFields } from '../../../plugins/store/drafts/draft-composition.js';
import type { Ending } from '../../support/ending.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { ann, change, type DraftFixture, fields, openDrafts, upload } from './draft-fixture.js';
import { dyingFiles } from './dying-files.js';

/** What somebody presses Send with, and presses again when no answer came. */
interface Form {
  readonly fields?: DraftFields;
  /** The version that was read; 'any' for whoever does not say. */
  readonly tag: string;
}

/** More than any send takes. */
const mostSteps = 100;
const written = {
  to: '"Doe, Bob" <bob@example.net>',
  cc: 'Zoë <zoe@example.net>',
  bcc: 'eve@example.net',
  subject: 'Grüße, with a subject that is too long for one line of a header, so that it is folded somewhere in between',
  text: 'first line\n\n  last — line, which is much longer than the seventy-six characters that a line of a message may have\n',
};

function send({ sending }: DraftFixture, draftId: string, { fields, tag }: Form) {
  const expected = tag === 'any' ? undefined : (present: string) => present === tag;
  return sending.send(ann, draftId, { fields, expected }, '127.0.0.1');
}

/** As a browser does: what was changed meanwhile is read again, and the same words are sent. */
async function persist(fixture: DraftFixture, draftId: string, form: Form) {
  try {
    return await send(fixture, draftId, form);
  } catch (error) {
    if ((error as { problem?: string }).problem !== 'precondition-failed') throw error;
    return send(fixture, draftId, { ...form, tag: (await fixture.drafts.read(ann, draftId)).tag });
  }
}

/** Dies at each step of a send in turn, starts again, and hands everything to `check`. */
async function dieEverywhere(
  t: Ending,
  formOf: (tag: string) => Form,
  check: (again: DraftFixture, draftId: string, form: Form, dying: DraftFixture, steps: number) => Promise<void>,
): Promise<void> {
  const data = await temporaryFolder(t);
  const { reader, drafts, root } = await openDrafts(t, data);
  for (let steps = 0; steps < mostSteps; steps++) {
    const { draftId } = await drafts.create(ann, change({ ...written, text: 'before' }));
    const { draft } = await drafts.attach(ann, draftId, [upload('a.txt', 'attached', 'text/plain')]);
    const { files, died } = dyingFiles(steps);
    const dying = await openDrafts(t, data, files, reader);
    const form = formOf(draft.tag);
    await send(dying, draftId, form).catch(() => undefined);
    await check(await openDrafts(t, data, nodeFiles, reader), draftId, form, dying, steps);
    if (!died()) {
      assert.ok(steps >= 5, 'it did die on the way');
      return;
    }
    for (const folder of ['.Sent', '.Drafts']) {
      await rm(join(root, 'example.org', 'ann', folder), { recursive: true, force: true });
    }
  }
  assert.fail('the send never ends');
}

suite('a draft is sent once, wherever the process dies', () => {
  const forms: Readonly<Record<string, (tag: string) => Form>> = {
    'a form, with what is written in it and its version': (tag) => ({ fields: fields(written), tag }),
    'a script, with fields': () => ({ fields: fields({ ...written, html: '<p>first line</p>' }), tag: 'any' }),
    'a script, with nothing': () => ({ tag: 'any' }),
  };
  for (const [who, formOf] of Object.entries(forms)) {
    test(`and sent again by ${who}`, async (t) => {
      await dieEverywhere(t, formOf, async (again, draftId, form, dying, steps) => {
        const { sentId } = await persist(again, draftId, form);
        const ids = [...dying.handedIn, ...again.handedIn].map(({ submission }) => submission.id);
        assert.equal(new Set(ids).size, 1, `after ${steps} steps: ${ids.join()}`);
        assert.deepEqual(await again.files(), [], `after ${steps} steps`);
        assert.deepEqual(await again.files('Sent'), [`${sentId}:2,S`], `after ${steps} steps`);
      });
    });
  }

  test('one that was handed in and noted is a message in Sent after the start, and no draft', async (t) => {
    let finished = 0;
    await dieEverywhere(
      t,
      () => ({ tag: 'any' }),
      async (again, draftId, _form, dying, steps) => {
        const places = [(await again.files()).length, (await again.files('Sent')).length];
        assert.ok(places.join() === '1,0' || places.join() === '0,1', `after ${steps} steps: ${places.join()}`);
        if (places[1] === 0) return;
        finished += 1;
        assert.equal(dying.handedIn.length, 1);
        assert.match(await again.only('Sent'), /\r\nBcc: eve@example.net\r\n/);
        await again.sending.send(ann, draftId, {}, '127.0.0.1');
        assert.equal(again.handedIn.length, 0);
      },
    );
    assert.ok(finished > 3, `${finished} deaths after it was noted`);
  });
});
