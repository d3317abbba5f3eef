import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import fc from 'fast-check';
import { atEnd, type Ending } from '../../support/ending.js';
import { EditingFixture, problemOf } from './editing-fixture.js';
import { ReadingFixture } from './reading-fixture.js';

/** Reads a mailbox each time a line names it, and prints folder, read or not, and subject of every message. */
const script = `
import json, mailbox, sys
for line in sys.stdin:
    box = mailbox.Maildir(line.rstrip("\\n"), factory=None, create=False)
    found = []
    def read(name, folder):
        found.append([name, []])
        for key, message in folder.iteritems():
            found[-1][1].append([message["Subject"], "S" in message.get_flags()])
        found[-1][1].sort()
    read("INBOX", box)
    for name in box.list_folders():
        read(name, box.get_folder(name))
    found.sort()
    print(json.dumps(found), flush=True)
`;

type State = readonly (readonly [folder: string, messages: readonly (readonly [subject: string, read: boolean])[]])[];

/** Python's own Maildir module: somebody else who reads what we write. */
class ForeignReader {
  readonly #process: ChildProcessWithoutNullStreams;
  readonly #lines: AsyncIterator<string>;

  constructor(test: Ending) {
    this.#process = spawn('python3', ['-c', script]);
    atEnd(test, () => void this.#process.kill());
    this.#lines = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]();
  }

  async read(mailbox: string): Promise<State> {
    this.#process.stdin.write(`${mailbox}\n`);
    const line: IteratorResult<string, unknown> = await this.#lines.next();
    assert.ok(line.done !== true, 'the other program still reads');
    return JSON.parse(line.value) as State;
  }
}

interface Kept {
  readonly subject: string;
  read: boolean;
}

/** What a mailbox should hold. Folder names in the model are those of the interface. */
class Model {
  folders = new Map<string, Kept[]>([['INBOX', []]]);

  state(): State {
    const byText = (a: readonly [string, unknown], b: readonly [string, unknown]) =>
      a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0;
    return [...this.folders]
      .map(([name, messages]) => {
        const shown = messages.map(({ subject, read }) => [subject, read] as const);
        return [name, shown.toSorted((a, b) => byText(a, b) || Number(a[1]) - Number(b[1]))] as const;
      })
      .toSorted(byText);
  }

  below(name: string): readonly string[] {
    return [...this.folders.keys()].filter((other) => other.startsWith(`${name}.`));
  }

  isTaken(name: string, leaving: readonly string[] = []): boolean {
    return [...this.folders.keys()].some((other) => !leaving.includes(other) && other === name);
  }
}

const names = ['A', 'B', 'A.x', 'B.x', 'C.y'] as const;
const folder = fc.constantFrom<string>('INBOX', 'Trash', ...names);
const own = fc.constantFrom<string>(...names);
const step = fc.oneof(
  fc.record({ kind: fc.constant('append' as const), folder, read: fc.boolean() }),
  fc.record({ kind: fc.constant('create' as const), folder: own }),
  fc.record({ kind: fc.constant('rename' as const), folder: own, to: own }),
  fc.record({ kind: fc.constant('copy' as const), folder, to: own }),
  fc.record({ kind: fc.constant('remove' as const), folder: own }),
  fc.record({ kind: fc.constant('move' as const), folder, to: folder, read: fc.boolean() }),
  fc.record({ kind: fc.constant('delete' as const), folder, read: fc.boolean() }),
  fc.record({ kind: fc.constant('mark' as const), folder, read: fc.boolean() }),
  fc.record({ kind: fc.constant('empty' as const), folder }),
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

class Run {
  readonly #fixture: EditingFixture;
  readonly #model = new Model();
  #count = 0;

  constructor(fixture: EditingFixture) {
    this.#fixture = fixture;
  }

  get state(): State {
    return this.#model.state();
  }

  /** Does it, and says whether it was refused; the model says whether it should have been. */
  async take(one: Step): Promise<void> {
    const { editor, mailbox, folder: at } = this.#fixture;
    const model = this.#model;
    const messages = model.folders.get(one.folder);
    if (one.kind === 'append') {
      const subject = `m${this.#count++}`;
      const done = this.#fixture.append(`Subject: ${subject}\r\n\r\n`, one.folder, one.read ? 'read' : 'unread');
      const isThere = messages !== undefined || one.folder === 'Trash';
      assert.equal(await problemOf(done), isThere ? 'none' : 'not-found');
      if (isThere) model.folders.set(one.folder, [...(messages ?? []), { subject, read: one.read }]);
    } else if (one.kind === 'create') {
      const outcome = await problemOf(editor.folders.create(mailbox, at(one.folder)));
      assert.equal(outcome, messages === undefined ? 'none' : 'conflict');
      if (messages === undefined) model.folders.set(one.folder, []);
    } else if (one.kind === 'remove') {
      const going = [one.folder, ...model.below(one.folder)];
      const outcome = await problemOf(editor.folders.remove(mailbox, at(one.folder), true));
      assert.equal(outcome, messages === undefined ? 'not-found' : 'none');
      if (messages !== undefined) for (const name of going) model.folders.delete(name);
    } else if (one.kind === 'rename') await this.#rename(one.folder, one.to);
    else if (one.kind === 'copy') await this.#copy(one.folder, one.to);
    else await this.#change(one, messages);
  }

  async #rename(from: string, to: string): Promise<void> {
    const { editor, mailbox, folder: at } = this.#fixture;
    const model = this.#model;
    const going = [from, ...model.below(from)];
    const targets = going.map((name) => to + name.slice(from.length));
    const expected = !model.folders.has(from)
      ? 'not-found'
      : from === to
        ? 'none'
        : to.startsWith(`${from}.`)
          ? 'invalid'
          : targets.some((name) => model.isTaken(name))
            ? 'conflict'
            : 'none';
    assert.equal(await problemOf(editor.folders.rename(mailbox, at(from), at(to))), expected, `${from} to ${to}`);
    if (expected !== 'none') return;
    const moved = going.map((name) => model.folders.get(name) ?? []);
    for (const name of going) model.folders.delete(name);
    for (const [index, name] of targets.entries()) model.folders.set(name, moved[index] ?? []);
  }

  async #copy(from: string, to: string): Promise<void> {
    const { editor, mailbox, folder: at } = this.#fixture;
    const model = this.#model;
    const copied = [from, ...(from === 'INBOX' ? [] : model.below(from))];
    const targets = copied.map((name) => to + name.slice(from.length));
    const outcome = await problemOf(editor.folders.copy(mailbox, at(from), at(to)));
    if (!model.folders.has(from)) return assert.equal(outcome, 'not-found');
    const isRefused = to.startsWith(`${from}.`) || targets.some((name) => model.isTaken(name));
    assert.equal(outcome === 'none', !isRefused, `${from} to ${to}: ${outcome}`);
    if (isRefused) return;
    for (const [index, name] of targets.entries()) {
      const source = model.folders.get(copied[index] ?? '') ?? [];
      model.folders.set(
        name,
        source.map((message) => ({ ...message })),
      );
    }
  }

  async #change(one: Extract<Step, { kind: 'move' | 'delete' | 'mark' | 'empty' }>, before: Kept[] | undefined) {
    const { editor, mailbox, folder: at, reading } = this.#fixture;
    const model = this.#model;
    if (before === undefined) {
      assert.equal(await problemOf(editor.messages.mark(mailbox, at(one.folder), ['x'], 'read')), 'not-found');
      return;
    }
    const filter = one.kind === 'move' || one.kind === 'delete' ? { unread: !one.read } : {};
    const { ids } = await reading.reader.matching(mailbox, at(one.folder), filter);
    const isChosen = ({ read }: Kept) => (one.kind === 'move' || one.kind === 'delete' ? read === one.read : true);
    const chosen = before.filter(isChosen);
    const others = before.filter((message) => !isChosen(message));
    assert.equal(ids.length, chosen.length, 'the list and the model have as many');
    if (one.kind === 'mark') {
      const wrong = before.filter(({ read }) => read !== one.read).length;
      const { updated, unchanged } = await editor.messages.mark(
        mailbox,
        at(one.folder),
        ids,
        one.read ? 'read' : 'unread',
      );
      assert.deepEqual([updated, unchanged], [wrong, before.length - wrong]);
      for (const message of before) message.read = one.read;
    } else if (one.kind === 'empty') {
      const { deleted } = await editor.messages.remove(mailbox, at(one.folder), ids);
      assert.equal(deleted, before.length);
      model.folders.set(one.folder, []);
    } else {
      const to = one.kind === 'move' ? one.to : 'Trash';
      const isForGood = one.kind === 'delete' && one.folder === 'Trash';
      const isPossible = to === 'Trash' || model.folders.has(to);
      const done =
        one.kind === 'move'
          ? editor.messages.move(mailbox, at(one.folder), at(to), ids)
          : editor.messages.discard(mailbox, at(one.folder), ids);
      const expected = one.kind === 'move' && to === one.folder ? 'invalid' : isPossible ? 'none' : 'not-found';
      assert.equal(await problemOf(done), expected);
      if (expected !== 'none') return;
      model.folders.set(one.folder, others);
      if (!isForGood) model.folders.set(to, [...(model.folders.get(to) ?? []), ...chosen]);
    }
  }
}

const python = spawnSync('python3', ['--version']).status === 0;

test(
  'whatever is done in whatever order, the mailbox holds what a plain model says, and another program reads the same',
  { skip: python ? false : 'python3 is not installed, whose mailbox module is the other program' },
  async (t) => {
    const foreign = new ForeignReader(t);
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), async (steps) => {
        const fixture = await EditingFixture.over(await ReadingFixture.open(t));
        const run = new Run(fixture);
        for (const one of steps) {
          await run.take(one);
          assert.deepEqual(await foreign.read(fixture.reading.home), run.state, JSON.stringify(one));
        }
        assert.deepEqual(await fixture.hidden(), []);
      }),
      { numRuns: 25 },
    );
  },
);
