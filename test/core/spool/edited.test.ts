import assert from 'node:assert/strict';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { openSpool } from '../../../core/spool/file-spool.js';
import { BodyError, type BodyEdit } from '../../../core/spool/spool.js';
import type { Ending } from '../../support/ending.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { rememberingLog } from './remembering-log.js';

async function spooled(test: Ending, pieces: readonly string[]) {
  const { log } = rememberingLog();
  const spool = await openSpool(join(await temporaryFolder(test), 'spool'), { log, reserveBytes: 0 });
  const writer = await spool.create(Buffer.from('Return-Path: <a@b>\r\n'), Buffer.from('Received: x\r\n'));
  for (const piece of pieces) await writer.write(Buffer.from(piece));
  const message = await writer.finish();
  test.after(() => message.release());
  return { spool, message };
}

const body = (write: BodyEdit['write'], limits: Partial<BodyEdit> = {}): BodyEdit => ({
  write,
  maxBytes: 10_000_000,
  limitMs: 5000,
  ...limits,
});
const none = { add: [], remove: [] };

async function* withFooter(source: AsyncIterable<Buffer>) {
  yield* source;
  yield '--\nThe list\n';
}

describe('another body', () => {
  const whole = 'Subject: one\r\nX-Old: 1\r\n\r\nHello\r\n';

  test('takes the place of what follows the header, wherever pieces are cut, beside other changes', async (t) => {
    const returnPath = Buffer.from('Return-Path: <srs@c>\r\n');
    for (let cut = 0; cut <= whole.length; cut += 3) {
      const { message } = await spooled(t, [whole.slice(0, cut), whole.slice(cut)]);
      const edit = { add: [['X-New', '2']], remove: ['x-old'], returnPath, body: body(withFooter) } as const;
      const edited = await message.rewrite(edit);
      assert.equal(
        await text(edited.open()),
        'Return-Path: <srs@c>\r\nReceived: x\r\nX-New: 2\r\nSubject: one\r\n\r\nHello\r\n--\r\nThe list\r\n',
      );
      assert.equal(edited.head.toString(), 'X-New: 2\r\nSubject: one\r\n\r\n');
      await edited.release();
    }
  });

  test('is written in pieces: a message that is larger than the memory of the spool', async (t) => {
    const line = `${'x'.repeat(70)}\r\n`;
    const { message } = await spooled(t, ['Subject: long\r\n\r\n', ...Array<string>(20_000).fill(line)]);
    const edited = await message.rewrite({ ...none, body: body(withFooter) });
    assert.equal(edited.size, message.size + '--\r\nThe list\r\n'.length);
    await edited.release();
  });

  test('follows an empty line where the message had none', async (t) => {
    const { message } = await spooled(t, ['Subject: one\r\n']);
    const edited = await message.rewrite({ ...none, body: body(withFooter) });
    assert.equal(await text(edited.open(edited.messageOffset)), 'Subject: one\r\n\r\n--\r\nThe list\r\n');
    await edited.release();
  });

  const never = new Promise<never>(() => undefined);
  const faults: Readonly<Record<string, readonly [edit: BodyEdit, why: RegExp]>> = {
    'throws at once': [
      body(() => {
        throw new Error('oops');
      }),
      /threw/,
    ],
    'throws in the middle': [
      body(async function* (source) {
        yield* source;
        throw new Error('oops');
      }),
      /threw/,
    ],
    hangs: [
      body(
        async function* (source) {
          yield* source;
          yield await never;
        },
        { limitMs: 20 },
      ),
      /longer than 20 ms/,
    ],
    'never ends': [
      body(
        async function* (source) {
          yield* source;
          for (;;) yield Buffer.alloc(64 * 1024, 'x');
        },
        { maxBytes: 1_000_000 },
      ),
      /longer than 1000000 bytes/,
    ],
    'is no text': [body(() => [1, 2] as never), /threw|neither/],
    'holds a NUL byte': [
      body(async function* (source) {
        yield* source;
        yield '\0';
      }),
      /threw/,
    ],
  };
  for (const [how, [edit, why]] of Object.entries(faults)) {
    test(`that ${how} leaves the message and the spool as they were`, async (t) => {
      const { spool, message } = await spooled(t, [whole]);
      await assert.rejects(message.rewrite({ ...none, body: edit }), (error) => {
        assert.ok(error instanceof BodyError);
        assert.match(error.message, why);
        return true;
      });
      assert.equal(await text(message.open(message.messageOffset)), whole);
      assert.equal(spool.report().status, 'up');
    });
  }
});
