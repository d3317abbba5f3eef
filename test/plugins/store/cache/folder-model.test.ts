import assert from 'node:assert/strict';
import { readdir, readFile, rename, rm, stat, unlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { compareNewestFirst } from '../../../../plugins/store/maildir/message-entry.js';
import { readMessageName } from '../../../../plugins/store/maildir/message-name.js';
import { CacheFixture } from './cache-fixture.js';

/** Steps of another program; numbers choose among the messages that are there. */
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('deliver' as const), second: fc.nat(20) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('flag' as const),
      at: fc.nat(),
      flags: fc.constantFrom('', 'S', 'F', 'FS', 'RSTa'),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('delete' as const), at: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('back' as const), at: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('settle' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('restart' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('forget' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('damage' as const), at: fc.nat(), bit: fc.nat(7) }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

interface Shown {
  readonly id: string;
  readonly subject: string;
  readonly unread: boolean;
  readonly flagged: boolean;
  readonly size: number;
}

/** Another program in the same folder; and a plain reading of it, which every answer is compared with. */
class OtherProgram {
  readonly #fixture: CacheFixture;
  #count = 0;

  constructor(fixture: CacheFixture) {
    this.#fixture = fixture;
  }

  async take(one: Step): Promise<void> {
    if (one.kind === 'deliver') return this.#deliver(one.second);
    if (one.kind === 'settle') return this.#fixture.reading.settled();
    if (one.kind === 'restart') return this.#fixture.restart();
    if (one.kind === 'forget') return this.#eachFile((path) => rm(path));
    if (one.kind === 'damage') return this.#eachFile((path) => damage(path, one.at, one.bit));
    const files = await this.#files();
    const file = files[one.at % Math.max(1, files.length)];
    if (file === undefined) return;
    const { id } = readMessageName(file.name);
    const home = this.#fixture.reading.home;
    if (one.kind === 'delete') await unlink(join(home, file.part, file.name));
    else if (one.kind === 'back') await rename(join(home, file.part, file.name), join(home, 'new', id));
    else await rename(join(home, file.part, file.name), join(home, 'cur', `${id}:2,${one.flags}`));
  }

  /** Newest first. */
  async read(): Promise<readonly Shown[]> {
    const found = (await this.#files()).map(async ({ part, name }) => {
      const path = join(this.#fixture.reading.home, part, name);
      const bytes = await readFile(path);
      const { mtimeMs: receivedAt } = await stat(path);
      const { id, flags } = readMessageName(name);
      const subject = /^Subject: (.*)\r$/m.exec(bytes.toString())?.[1] ?? '';
      return {
        id,
        receivedAt,
        subject,
        unread: !flags.includes('S'),
        flagged: flags.includes('F'),
        size: bytes.length,
      };
    });
    const sorted = (await Promise.all(found)).toSorted(compareNewestFirst);
    return sorted.map(({ id, subject, unread, flagged, size }) => ({ id, subject, unread, flagged, size }));
  }

  async #deliver(second: number): Promise<void> {
    this.#count += 1;
    const name = `${1_700_000_000 + second}.M${this.#count % 3}P1Q${this.#count}.host`;
    const bytes = `Subject: s${this.#count} of ${second}\r\n\r\nText\r\n`;
    const path = join(this.#fixture.reading.home, 'new', `${name},S=${bytes.length}`);
    await writeFile(path, bytes);
    await utimes(path, 1_700_000_000 + second, 1_700_000_000 + second + (this.#count % 3));
  }

  async #files(): Promise<readonly { readonly part: string; readonly name: string }[]> {
    const parts = ['new', 'cur'].map(async (part) => {
      const names = await readdir(join(this.#fixture.reading.home, part));
      return names.toSorted().map((name) => ({ part, name }));
    });
    return (await Promise.all(parts)).flat();
  }

  async #eachFile(act: (path: string) => Promise<void>): Promise<void> {
    for (const name of await readdir(this.#fixture.files)) await act(join(this.#fixture.files, name));
  }
}

async function damage(path: string, at: number, bit: number): Promise<void> {
  const bytes = await readFile(path);
  const place = at % bytes.length;
  bytes[place] = (bytes[place] ?? 0) ^ (1 << bit);
  await writeFile(path, bytes);
}

async function compare(fixture: CacheFixture, plain: readonly Shown[], done: string): Promise<void> {
  const pages: Shown[] = [];
  let cursor: string | null = '';
  while (cursor !== null) {
    const page = await fixture.list({ limit: 7, ...(cursor === '' ? {} : { cursor }) });
    pages.push(...page.items.map(({ id, subject, unread, flagged, size }) => ({ id, subject, unread, flagged, size })));
    cursor = page.nextCursor;
    assert.deepEqual(
      [page.folder.total, page.folder.unread, page.folder.size],
      [plain.length, plain.filter(({ unread }) => unread).length, plain.reduce((sum, { size }) => sum + size, 0)],
      done,
    );
  }
  assert.deepEqual(pages, plain, done);
  const subjectsOf = (fits: (one: Shown) => boolean) => plain.filter(fits).map(({ subject }) => subject);
  assert.deepEqual(
    await fixture.shown({ q: 's1', unread: true }),
    subjectsOf(({ subject, unread }) => subject.includes('s1') && unread),
    done,
  );
  assert.deepEqual(
    await fixture.shown({ flagged: true, order: 'oldest' }),
    subjectsOf(({ flagged }) => flagged).toReversed(),
    done,
  );
}

test('whatever another program does, and whatever becomes of the cache, answers are those of a plain reading', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 30 }), async (steps) => {
      const fixture = await CacheFixture.open(t);
      const other = new OtherProgram(fixture);
      for (const one of steps) {
        await other.take(one);
        await compare(fixture, await other.read(), JSON.stringify(one));
      }
      await fixture.restart();
    }),
    { numRuns: 12 },
  );
});
