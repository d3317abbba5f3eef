import assert from 'node:assert/strict';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { suite, test } from 'node:test';
import { message, ReadingFixture } from './reading-fixture.js';

const multipart = (depth: number) =>
  message(
    ...Array.from({ length: depth }, (_, n) => [`Content-Type: multipart/mixed; boundary=b${n}`, '', `--b${n}`]).flat(),
    '',
    'deep',
  );

/** Messages that were made to break whoever reads them; each must be shown in one way or another. */
const hostile: Readonly<Record<string, () => string | Buffer>> = {
  empty: () => '',
  'only headers': () => 'Subject: x\r\nFrom: a@b\r\n',
  'no header': () => message('', 'text'),
  '100 levels': () => multipart(100),
  '10,000 levels': () => multipart(10_000),
  '20,000 parts': () =>
    message('Content-Type: multipart/mixed; boundary=b', '', ...Array.from({ length: 20_000 }, () => '--b\r\n\r\nx')),
  '2,000 forwarded messages in each other': () =>
    message(...Array.from({ length: 2000 }, () => 'Content-Type: message/rfc822\r\n')),
  '20,000 pieces of a file name': () =>
    message(
      'Content-Type: application/x; name=x',
      `Content-Disposition: attachment${Array.from({ length: 20_000 }, (_, n) => `;\r\n filename*${n}=x`).join('')}`,
      '',
      'x',
    ),
  'unknown charset and encoding': () =>
    message('Content-Type: text/plain; charset=x-nothing', 'Content-Transfer-Encoding: rot13', '', 'Hi'),
  '10 MB of base64 junk': () =>
    message('Content-Type: text/plain', 'Content-Transfer-Encoding: base64', '', '=*A-'.repeat(2_500_000)),
  '5 MB of nested HTML': () => message('Content-Type: text/html', '', '<div>'.repeat(1_000_000)),
  '4 MB of flowed text': () =>
    message('Content-Type: text/plain; format=flowed; delsp=yes', '', '> > a \r\n'.repeat(500_000)),
  '200,000 header fields': () => `${'X-A: b\r\n'.repeat(200_000)}\r\ntext`,
  'a header line of 1 MB': () => `Subject: ${'s'.repeat(1_000_000)}\r\n\r\ntext`,
  'a header folded 100,000 times': () => `Subject: x${'\r\n y'.repeat(100_000)}\r\n\r\ntext`,
  '100,000 recipients': () => `To: ${'a@b, '.repeat(100_000)}\r\n\r\ntext`,
  'names of object members': () => '__proto__: x\r\nconstructor: y\r\ntoString: z\r\n\r\ntext',
  'NUL and bytes of no charset': () => Buffer.from('Subject: \0\xff\xfe\r\n\r\n\0\xff\x80', 'latin1'),
};

suite('messages that were made to break the reader', () => {
  test('are listed and shown, and the server goes on meanwhile', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const ids: (readonly [string, string])[] = [];
    for (const [name, content] of Object.entries(hostile)) ids.push([name, await fixture.file(content())]);
    const delay = monitorEventLoopDelay({ resolution: 5 });
    delay.enable();
    const list = await fixture.list();
    assert.equal(list.items.length, ids.length);
    for (const [name, id] of ids) {
      const view = await fixture.view(id);
      assert.equal(view.id, id, name);
      assert.notEqual(view.unparsed, 'failed', name);
    }
    delay.disable();
    t.diagnostic(`longest pause of the event loop: ${Math.round(delay.max / 1e6)} ms`);
  });

  test('are read as far as they can be understood', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const viewOf = async (name: string) => fixture.view(await fixture.file(hostile[name]?.() ?? ''));
    assert.equal((await viewOf('unknown charset and encoding')).text, 'Hi\n');
    assert.equal((await viewOf('no header')).text, 'text\n');
    assert.equal((await viewOf('20,000 parts')).truncated, true);
    assert.equal((await viewOf('100,000 recipients')).to.length, 10_000);
    assert.deepEqual(
      (await viewOf('names of object members')).headers.map(([name]) => name),
      ['__proto__', 'constructor', 'toString'],
    );
    assert.match((await viewOf('20,000 pieces of a file name')).parts[0]?.filename ?? '', /^x{100,200}/);
  });
});

suite('a message that cannot be parsed', () => {
  test('is shown with its headers when parsing took too long, and the next message is parsed again', async (t) => {
    const fixture = await ReadingFixture.open(t, { timeLimitMs: 1 });
    const slow = await fixture.file(message('Subject: slow', 'Content-Type: text/html', '', '<p>x</p>'.repeat(60_000)));
    const view = await fixture.view(slow);
    assert.deepEqual(
      [view.unparsed, view.text, view.html, view.parts, view.subject],
      ['took too long', null, null, [], 'slow'],
    );
    assert.deepEqual(view.headers[0], ['Subject', 'slow']);
    const raw = await fixture.reader.rawHead({ mailbox: fixture.mailbox, folder: fixture.folder(), id: slow });
    assert.ok(raw.bytes.toString().startsWith('Subject: slow'));
    const second = await fixture.view(slow);
    assert.equal(second.unparsed, 'took too long');
  });

  test('is shown with its headers when it is larger than what is parsed', async (t) => {
    const fixture = await ReadingFixture.open(t, { messageBytes: 100 });
    const id = await fixture.file(message('Subject: big', '', 'x'.repeat(200)));
    const view = await fixture.view(id);
    assert.deepEqual([view.unparsed, view.subject], ['too large', 'big']);
    const small = await fixture.view(await fixture.file(message('Subject: small', '', 'x')));
    assert.deepEqual([small.unparsed, small.text], [null, 'x\n']);
  });

  test('does not take the memory of the server', async (t) => {
    const fixture = await ReadingFixture.open(t, { memoryMb: 8, timeLimitMs: 20_000 });
    const heavy = await fixture.file(
      message('Subject: heavy', 'Content-Type: text/html', '', '<p style="color:red">x</p>'.repeat(20_000)),
    );
    assert.notEqual((await fixture.view(heavy)).unparsed, 'took too long');
    assert.equal((await fixture.list()).items[0]?.subject, 'heavy');
  });

  test('more readers than may wait are refused for now', async (t) => {
    const fixture = await ReadingFixture.open(t, { workers: 1, queue: 1 });
    const id = await fixture.file(message('Subject: x', '', 'x'));
    const answers = await Promise.allSettled(Array.from({ length: 6 }, () => fixture.view(id)));
    const refused = answers.filter((answer) => answer.status === 'rejected');
    assert.ok(refused.length > 0 && refused.length < 6);
    for (const { reason } of refused) assert.equal((reason as { problem?: string }).problem, 'unavailable');
  });
});
