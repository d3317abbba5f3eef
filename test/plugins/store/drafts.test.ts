import assert from 'node:assert/strict';
import { mkdir, rename, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { readMessageName } from '../../../plugins/store/maildir/message-name.js';
import { markName, draftMarkOf } from '../../../plugins/store/drafts/draft.js';
import { FaultyFiles } from '../../core/spool/faulty-files.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { ann, change, fields, openDrafts, upload } from './draft-fixture.js';

suite('drafts on the disk', () => {
  test('a draft is one message with flag D, and its id stays while its file changes', async (t) => {
    const { drafts, files, only } = await openDrafts(t, await temporaryFolder(t));
    const first = await drafts.create(ann, change({ subject: 'one', to: 'Bob <bob@example.net>', text: 'a' }));
    const second = await drafts.update(
      ann,
      first.draftId,
      change({ subject: 'two', text: 'b', bcc: 'eve@example.net' }),
    );
    assert.equal(second.draftId, first.draftId);
    assert.notEqual(second.id, first.id);
    assert.notEqual(second.tag, first.tag);
    const [name = '', ...others] = await files();
    assert.deepEqual(others, []);
    assert.match(name, /:2,DS$/);
    const raw = await only();
    assert.equal(readMessageName(name).size, raw.length);
    assert.match(raw, /\r\nSubject: two\r\n/);
    assert.match(raw, /\r\nBcc: eve@example.net\r\n/);
    assert.match(raw, /^From: ann@example.org\r\n/);
    assert.doesNotMatch(raw, /(?<!\r)\n/);
    assert.equal(second.content.messageId, first.content.messageId, 'and the Message-ID');
  });

  test('attachments stay when fields change, in order and to the byte, and go one by one', async (t) => {
    const { drafts, only } = await openDrafts(t, await temporaryFolder(t));
    const { draftId } = await drafts.create(ann, change({ text: 'x' }));
    const bytes = Buffer.from(Array.from({ length: 5000 }, (_, n) => n & 255));
    const { added } = await drafts.attach(ann, draftId, [upload('a.bin', bytes), upload('ä.txt', 'two', 'text/plain')]);
    const third = await drafts.attach(ann, draftId, [upload('c', '')]);
    const names = ['a.bin', 'ä.txt', 'c'];
    assert.deepEqual(
      third.draft.content.attachments.map(({ filename }) => filename),
      names,
    );
    const saved = await drafts.update(ann, draftId, change({ text: 'y', html: '<p>y</p>' }));
    assert.deepEqual(
      saved.content.attachments.map(({ attachmentId }) => attachmentId),
      [...added, ...third.added].map(({ attachmentId }) => attachmentId),
    );
    assert.deepEqual([saved.content.text, saved.content.html], ['y', '<p>y</p>']);
    const found = await drafts.attachment(ann, draftId, added[0]?.attachmentId ?? '');
    assert.deepEqual(Buffer.from(found.bytes), bytes);
    await drafts.detach(ann, draftId, added[0]?.attachmentId ?? '');
    const left = await drafts.read(ann, draftId);
    assert.deepEqual(
      left.content.attachments.map(({ filename }) => filename),
      names.slice(1),
    );
    await assert.rejects(drafts.detach(ann, draftId, added[0]?.attachmentId ?? ''), { problem: 'not-found' });
    const size = (await only()).length;
    for (let n = 0; n < 5; n++) await drafts.update(ann, draftId, change({ text: 'y', html: '<p>y</p>' }));
    assert.ok(Math.abs((await only()).length - size) < 20, 'nothing grows with each version');
  });

  test('a change based on another version is refused, and nothing changes', async (t) => {
    const { drafts } = await openDrafts(t, await temporaryFolder(t));
    const { draftId, tag } = await drafts.create(ann, change({ subject: 'one' }));
    const expected = (given: string) => given === tag;
    await drafts.update(ann, draftId, change({ subject: 'two' }), expected);
    const late = { problem: 'precondition-failed' };
    await assert.rejects(drafts.update(ann, draftId, change({ subject: 'late' }), expected), late);
    await assert.rejects(drafts.attach(ann, draftId, [upload('a', 'x')], { expected }), late);
    await assert.rejects(drafts.remove(ann, draftId, expected), late);
    const now = await drafts.read(ann, draftId);
    assert.equal(now.content.subject, 'two');
    assert.deepEqual(now.content.attachments, []);
  });

  test('a raw message takes the place of everything', async (t) => {
    const { drafts, only } = await openDrafts(t, await temporaryFolder(t));
    const { draftId } = await drafts.create(ann, change({ subject: 'one' }));
    await drafts.attach(ann, draftId, [upload('a', 'x')]);
    const raw = upload('', 'X-Mine: 1\nSubject: raw\nFrom: ann@example.org\n\nbody\n').open();
    const { content } = await drafts.update(ann, draftId, { kind: 'raw', content: raw });
    assert.equal(await only(), 'X-Mine: 1\r\nSubject: raw\r\nFrom: ann@example.org\r\n\r\nbody\r\n');
    assert.deepEqual([content.subject, content.text, content.attachments], ['raw', 'body', []]);
    await drafts.update(ann, draftId, change({ subject: 'fields again' }));
    assert.match(await only(), /^X-Mine: 1\r\n/, 'fields that nobody edits stay');
    const nul = upload('', 'Subject: a\0b\n\n').open();
    await assert.rejects(drafts.create(ann, { kind: 'raw', content: nul }), { problem: 'invalid' });
  });

  test('what a mail client wrote is a draft too, and keeps its id when it is saved here', async (t) => {
    const { drafts, store, root, files } = await openDrafts(t, await temporaryFolder(t));
    const cur = join(root, 'example.org', 'ann', '.Drafts', 'cur');
    await mkdir(cur, { recursive: true });
    const message = [
      'From: Ann <ann@example.org>',
      'Content-Type: multipart/mixed; boundary=b',
      '',
      '--b',
      'Content-Type: text/plain; charset=iso-8859-1',
      '',
      'caf\xe9',
      '--b',
      'Content-Type: image/png; name=p.png',
      'Content-Transfer-Encoding: base64',
      '',
      'iVBORw0KGgo=',
      '--b--',
      '',
    ].join('\n');
    await writeFile(join(cur, '1700000000.M1P1.client:2,DFa'), message, 'latin1');
    const [found] = await store.all(ann);
    const before = await drafts.read(ann, found?.draftId ?? '');
    assert.equal(before.content.text, 'café');
    assert.deepEqual(
      before.content.attachments.map(({ filename }) => filename),
      ['p.png'],
    );
    const after = await drafts.update(ann, before.draftId, change({ text: 'new' }));
    assert.equal(after.draftId, before.draftId);
    assert.equal(after.content.attachments[0]?.attachmentId, before.content.attachments[0]?.attachmentId);
    assert.match((await files()).join(), /:2,DFSa$/, 'its other flags stay');
    const { attachmentId = '' } = after.content.attachments[0] ?? {};
    const { bytes } = await drafts.attachment(ann, after.draftId, attachmentId);
    assert.equal(Buffer.from(bytes).toString('base64'), 'iVBORw0KGgo=');
  });

  test('when the old version does not go, the new one is shown once and tidies up', async (t) => {
    const disk = new FaultyFiles();
    const { drafts, store, files } = await openDrafts(t, await temporaryFolder(t), disk);
    const { draftId } = await drafts.create(ann, change({ subject: 'one' }));
    disk.order({ call: 'unlink', code: 'EIO', path: '.Drafts' });
    await drafts.update(ann, draftId, change({ subject: 'two' }));
    assert.equal((await files()).length, 2);
    assert.equal((await store.all(ann)).length, 1);
    disk.order();
    assert.equal((await drafts.read(ann, draftId)).content.subject, 'two');
    assert.equal((await files()).length, 1);
  });

  for (const [call, code] of [
    ['write', 'ENOSPC'],
    ['fsync', 'EIO'],
    ['link', 'EDQUOT'],
    ['open', 'EMFILE'],
  ] as const) {
    test(`a fault of ${call} leaves the draft as it was`, async (t) => {
      const disk = new FaultyFiles();
      const { drafts, files } = await openDrafts(t, await temporaryFolder(t), disk);
      const before = await drafts.create(ann, change({ subject: 'one' }));
      disk.order({ call, code });
      await assert.rejects(drafts.update(ann, before.draftId, change({ subject: 'two' })), (error: Error) => {
        assert.doesNotMatch(error.message, /\//, 'no path is named');
        return true;
      });
      disk.order();
      assert.deepEqual(await drafts.read(ann, before.draftId), before);
      assert.equal((await files()).length, 1);
    });
  }

  test('a hundred changes at once lose nothing', async (t) => {
    const { drafts, files } = await openDrafts(t, await temporaryFolder(t));
    const { draftId } = await drafts.create(ann, change({ text: 'x' }));
    const tasks = Array.from({ length: 100 }, (_, n) =>
      n % 2 === 0
        ? drafts.attach(ann, draftId, [upload(`file-${n}`, `content ${n}`)]).then(({ draft }) => draft)
        : drafts.update(ann, draftId, change({ text: `text ${n}` })),
    );
    const versions = await Promise.all(tasks);
    assert.equal(new Set(versions.map(({ tag }) => tag)).size, 100);
    const { content } = await drafts.read(ann, draftId);
    const names = content.attachments.map(({ filename }) => filename);
    assert.deepEqual(new Set(names), new Set(Array.from({ length: 50 }, (_, n) => `file-${n * 2}`)));
    assert.match(content.text ?? '', /^text \d+$/);
    assert.equal((await files()).length, 1);
  });

  test('of two who discard a draft one finds it', async (t) => {
    const { drafts, files } = await openDrafts(t, await temporaryFolder(t));
    const { draftId } = await drafts.create(ann, change({ text: 'x' }));
    const both = await Promise.allSettled([drafts.remove(ann, draftId), drafts.remove(ann, draftId)]);
    assert.deepEqual(
      both.map(({ status }) => status),
      ['fulfilled', 'rejected'],
    );
    assert.deepEqual(await files(), []);
  });

  test('HTML that the editor did not show stays while the text is the same', async (t) => {
    const { drafts } = await openDrafts(t, await temporaryFolder(t));
    const { draftId } = await drafts.create(ann, change({ text: 'a\nb', html: '<p>a</p>' }));
    const form = (text: string) => ({ kind: 'fields', keepHtml: true, fields: fields({ text }) }) as const;
    assert.equal((await drafts.update(ann, draftId, form('a\nb'))).content.html, '<p>a</p>');
    assert.equal((await drafts.update(ann, draftId, form('a\nc'))).content.html, null);
  });

  test('HTML that a script sends along goes out, and that of the editor stays when a file is attached or removed', async (t) => {
    const { drafts, sending, handedIn } = await openDrafts(t, await temporaryFolder(t));
    const { draftId } = await drafts.create(ann, change({ to: 'bob@example.net', text: 'a', html: '<p>a</p>' }));
    const editor = fields({ to: 'bob@example.net', text: 'a' });
    const { draft, added } = await drafts.attach(ann, draftId, [upload('f', 'x')], { fields: editor });
    assert.equal(draft.content.html, '<p>a</p>');
    const without = await drafts.detach(ann, draftId, added[0]?.attachmentId ?? '', { fields: editor });
    assert.equal(without.content.html, '<p>a</p>');
    await sending.send(ann, draftId, { fields: { ...editor, html: '<p>other</p>' } }, '127.0.0.1');
    assert.match(handedIn[0]?.message ?? '', /<p>other<\/p>/);
  });
});

suite('names of drafts', () => {
  test('the mark comes back from the name, also when the host is long', () => {
    const mark = { draftId: '01m7xwjky6000bn568c1', revision: 12 };
    for (const host of ['a', 'h'.repeat(120)]) {
      const name = markName(`1795225636.M861000P1029Q1R${'0f'.repeat(16)}.${host},S=382,W=382`, mark);
      assert.ok(name.length <= 200);
      assert.match(name, /,S=382,W=382$/);
      assert.deepEqual(draftMarkOf(name), mark);
    }
  });

  test('sizes that another program adds do not change the id', () => {
    assert.deepEqual(draftMarkOf('1700000000.M1P1.client'), draftMarkOf('1700000000.M1P1.client,S=10,W=12'));
  });
});

suite('sending drafts', () => {
  test('Bcc reaches its people and no header but the sender’s own copy', async (t) => {
    const { drafts, sending, handedIn, files, only } = await openDrafts(t, await temporaryFolder(t));
    const people = { to: 'Bob <bob@example.net>', cc: 'cy@example.net, bob@example.net', bcc: 'Eve <eve@example.net>' };
    const { draftId } = await drafts.create(ann, change({ ...people, subject: 'hello', text: 'x' }));
    const { uid, sentId } = await sending.send(ann, draftId, {}, '127.0.0.1');
    assert.equal(uid, null);
    const [{ submission, message } = {}] = handedIn;
    assert.deepEqual(
      submission?.recipients.map(({ address }) => address),
      ['bob@example.net', 'cy@example.net', 'eve@example.net'],
    );
    assert.equal(submission?.username, 'ann@example.org');
    assert.equal(submission?.reversePath?.address, 'ann@example.org');
    assert.doesNotMatch(message ?? '', /eve@|^Bcc:/im);
    assert.equal(message?.match(/^Date:/gm)?.length, 1);
    assert.deepEqual(await files(), []);
    assert.match(await only('Sent'), /\r\nBcc: Eve <eve@example.net>\r\n/);
    assert.deepEqual(await files('Sent'), [`${sentId}:2,S`]);
  });

  test('Bcc of a raw draft is not in the message that others get, however the field is written', async (t) => {
    const { drafts, sending, handedIn } = await openDrafts(t, await temporaryFolder(t));
    const forms = [
      ['Bcc: ', 'bCC:', 'Bcc : ', 'Bcc\t:', 'Bcc\r\n : ', 'Bcc\n\t\n : ', 'Bcc\x01:', 'Bcc\x1f\f:', 'Bcc\r:'],
      [`Bcc${' '.repeat(300)}:`, `Bcc${'\r\n '.repeat(300)}:`, 'Bcc:\r\n ', 'Bcc: cy@example.net,\r\n \r\n '],
      ['\f\r\nBcc: ', '\v\r\nBcc: ', '\r\r\nBcc: ', '\x1f\nBcc: ', '\xa0\r\nBcc: ', 'no field\r\n\f\r\nBcc: '],
      ['X: y\r\n \r\nBcc: ', 'From ann\r\nBcc: ', ': nameless\r\nBcc: ', 'Bcc\r\nBcc: ', 'Bcc\x7f: ', 'Bcc\xa0: '],
    ].flat();
    for (const form of forms) {
      const raw = Buffer.from(`To: bob@example.net\r\n${form}eve@example.net\r\nSubject: x\r\n\r\nx\r\n`, 'latin1');
      const { draftId } = await drafts.create(ann, { kind: 'raw', content: upload('', raw).open() });
      await sending.send(ann, draftId, {}, '127.0.0.1');
      const { submission, message = '' } = handedIn.at(-1) ?? {};
      const isDelivered = submission?.recipients.some(({ address }) => address === 'eve@example.net') === true;
      assert.ok(!(isDelivered && message.includes('eve@')), JSON.stringify(form));
      assert.match(message, /\r\nSubject: x\r\n\r\nx\r\n$/);
    }
  });

  test('a draft that is too large to be parsed is replaced by a whole message', async (t) => {
    const { drafts, store, root, files } = await openDrafts(t, await temporaryFolder(t));
    const { draftId } = await drafts.create(ann, change({ text: 'x' }));
    const [name = ''] = await files();
    const file = join(root, 'example.org', 'ann', '.Drafts', 'cur', name);
    await rename(file, file.replace(/,S=\d+,W=\d+/, ''));
    await truncate(file.replace(/,S=\d+,W=\d+/, ''), 129 * 1024 * 1024);
    await assert.rejects(drafts.read(ann, draftId), { problem: 'conflict' });
    const raw = () => upload('', 'Subject: new\r\n\r\nx\r\n').open();
    await assert.rejects(
      drafts.update(ann, draftId, { kind: 'raw', content: raw() }, () => false),
      { problem: 'precondition-failed' },
    );
    const { content } = await drafts.update(ann, draftId, { kind: 'raw', content: raw() });
    assert.equal(content.subject, 'new');
    assert.equal((await store.all(ann)).length, 1);
    assert.equal((await files()).length, 1);
  });

  test('a second click, now or later, sends nothing and gets the same answer', async (t) => {
    const { drafts, sending, handedIn } = await openDrafts(t, await temporaryFolder(t));
    const { draftId } = await drafts.create(ann, change({ to: 'bob@example.net' }));
    const send = () => sending.send(ann, draftId, {}, '127.0.0.1');
    const answers = await Promise.all([send(), send(), send()]);
    answers.push(await send());
    assert.equal(new Set(answers.map(({ sentId }) => sentId)).size, 1);
    assert.equal(handedIn.length, 1);
  });

  test('a second click on a form, which carries the version that both have read, gets the same answer', async (t) => {
    const { drafts, sending, handedIn } = await openDrafts(t, await temporaryFolder(t));
    const { draftId, tag } = await drafts.create(ann, change({ to: 'bob@example.net' }));
    const { fields } = change({ to: 'bob@example.net', text: 'the last word' });
    const along = { fields, expected: (present: string) => present === tag };
    const answers = await Promise.all([1, 2, 3].map(() => sending.send(ann, draftId, along, '127.0.0.1')));
    assert.equal(new Set(answers.map(({ sentId }) => sentId)).size, 1);
    assert.equal(handedIn.length, 1);
  });

  test('other content than was sent a moment ago is refused with a reason', async (t) => {
    const { drafts, sending, handedIn } = await openDrafts(t, await temporaryFolder(t));
    const { draftId, tag } = await drafts.create(ann, change({ to: 'bob@example.net' }));
    const send = (text: string) => {
      const { fields } = change({ to: 'bob@example.net', text });
      return sending.send(ann, draftId, { fields, expected: (present) => present === tag }, '127.0.0.1');
    };
    const [first, second] = await Promise.allSettled([send('one'), send('two')]);
    assert.equal(first.status, 'fulfilled');
    assert.equal(second.status === 'rejected' && (second.reason as { problem: string }).problem, 'conflict');
    assert.equal((await send('one')).sentId, first.value.sentId);
    assert.equal((await sending.send(ann, draftId, {}, '127.0.0.1')).sentId, first.value.sentId);
    assert.equal(handedIn.length, 1);
  });

  test('after a crash between filing and removing, the draft is not sent again unless it was changed', async (t) => {
    const disk = new FaultyFiles();
    const { drafts, sending, handedIn, files } = await openDrafts(t, await temporaryFolder(t), disk);
    const { draftId } = await drafts.create(ann, change({ to: 'bob@example.net' }));
    disk.order({ call: 'unlink', code: 'EIO', path: '.Drafts' });
    await assert.rejects(sending.send(ann, draftId, {}, '127.0.0.1'));
    disk.order();
    assert.equal((await files()).length, 1);
    await sending.send(ann, draftId, {}, '127.0.0.1');
    assert.equal(handedIn.length, 1);
    assert.deepEqual(await files(), []);
  });

  test('a form that was saved, sent and not removed is sent again, and sends nothing', async (t) => {
    const disk = new FaultyFiles();
    const { drafts, sending, handedIn, files, only } = await openDrafts(t, await temporaryFolder(t), disk);
    const { draftId, tag } = await drafts.create(ann, change({ to: 'bob@example.net' }));
    const { fields } = change({ to: 'bob@example.net', text: 'the last word' });
    const send = (given = fields) =>
      sending.send(ann, draftId, { fields: given, expected: (present) => present === tag }, '127.0.0.1');
    disk.order({ call: 'link', code: 'ENOSPC', path: '.Sent' });
    await assert.rejects(send(), { problem: 'storage-full' });
    disk.order();
    const other = change({ to: 'bob@example.net', text: 'another word' }).fields;
    await assert.rejects(send(other), { problem: 'precondition-failed' });
    await send();
    assert.equal(handedIn.length, 1);
    assert.deepEqual(await files(), []);
    assert.match(await only('Sent'), /the last word/);
  });

  test('without a recipient nothing is sent, and the draft stays', async (t) => {
    const { drafts, sending, handedIn, files } = await openDrafts(t, await temporaryFolder(t));
    const { draftId } = await drafts.create(ann, change({ text: 'x' }));
    await assert.rejects(sending.send(ann, draftId, {}, '127.0.0.1'), { problem: 'invalid' });
    const raw = upload('', 'To: not an address, undisclosed:;\r\n\r\nx\r\n').open();
    await drafts.update(ann, draftId, { kind: 'raw', content: raw });
    await assert.rejects(sending.send(ann, draftId, {}, '127.0.0.1'), { problem: 'invalid' });
    assert.equal(handedIn.length, 0);
    assert.equal((await files()).length, 1);
  });
});
