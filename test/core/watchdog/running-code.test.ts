import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  followMarks,
  markOf,
  pluginAt,
  runAs,
  running,
  type RunningCode,
} from '../../../core/watchdog/running-code.js';

test('code keeps one mark, and followers receive all marks', () => {
  const early = markOf('early', 'timer');
  const heard = new Map<number, RunningCode>();
  const unfollow = followMarks((mark, code) => heard.set(mark, code));
  const late = markOf('late', 'hook rcptTo');
  assert.equal(markOf('late', 'hook rcptTo'), late);
  assert.notEqual(markOf('late', 'hook message'), late);
  assert.deepEqual(heard.get(early), { plugin: 'early', doing: 'timer' });
  assert.deepEqual(heard.get(late), { plugin: 'late', doing: 'hook rcptTo' });
  unfollow();
  assert.equal(heard.has(markOf('later', 'timer')), false);
});

test('the mark is that of the innermost code, also after errors', async () => {
  const [outer, inner] = [markOf('outer', 'hook rcptTo'), markOf('inner', 'hook rcptTo')];
  const seen: (number | undefined)[] = [];
  const look = (): void => void seen.push(running[0]);
  const answer = runAs(outer, () => {
    look();
    assert.throws(
      () =>
        runAs(inner, () => {
          look();
          throw new Error('no');
        }),
      /no/,
    );
    look();
    return 'answer';
  });
  look();
  assert.equal(answer, 'answer');
  assert.deepEqual(seen, [outer, inner, outer, 0]);

  const late = runAs(outer, async () => {
    await Promise.resolve();
    return running[0];
  });
  assert.equal(running[0], 0);
  assert.equal(await late, 0);
});

test('a file belongs to the plugin whose folder contains it, or whose file it is', () => {
  const places = [
    { plugin: 'greylist', url: 'file:///srv/greylist/' },
    { plugin: 'single', url: 'file:///srv/single.js' },
  ];
  const node = 'readSync (node:fs:700:3)';
  assert.equal(pluginAt([node, 'check (file:///srv/greylist/lib/age.js:1:2)'], places), 'greylist');
  assert.equal(pluginAt(['(anonymous) (file:///srv/single.js:1:2)'], places), 'single');
  assert.equal(pluginAt(['(anonymous) (file:///srv/single.json.js:1:2)'], places), undefined);
  assert.equal(pluginAt([node, 'x (file:///srv/greylist-2/index.js:1:2)'], places), undefined);
  assert.equal(pluginAt([], places), undefined);
});
