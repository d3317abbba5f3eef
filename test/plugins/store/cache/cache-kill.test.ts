import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { CacheFixture } from './cache-fixture.js';

const script = fileURLToPath(new URL('./keeping-process.js', import.meta.url));

test('a process that is killed while it keeps what it read leaves something older, or nothing, but nothing wrong', async (t) => {
  const fixture = await CacheFixture.open(t);
  await fixture.fill(300);
  for (let round = 0; round < 6; round++) {
    const child = spawn(process.execPath, [script, fixture.reading.root, fixture.files], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    // The more often it has kept something, the more there is to be replaced; where it is then is up to chance.
    for (let seen = 0; seen <= round; seen++) {
      await fixture.add(`new${round}-${seen}`);
      await fixture.remove(`m${round * 20 + seen + 1}`);
      await lines.next();
    }
    child.kill('SIGKILL');
    await once(child, 'exit');
    const newest = `new${round}-${round}`;
    const shown = await fixture.shown();
    assert.equal(shown[0], newest);
    assert.equal(shown.length, 300, 'as many came as went');
    assert.deepEqual(await fixture.shown({ q: newest }), [newest]);
    assert.deepEqual(await fixture.shown({ q: 'm300' }), ['m300']);
    await fixture.restart();
  }
});
