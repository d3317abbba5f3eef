import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pluginRoad } from './plugin-road.js';

test('four commands lead from an empty folder to a plugin that refuses a mail and has a page', async (t) => {
  const { steps, reply, page } = await pluginRoad(t);
  for (const { command, seconds } of steps) t.diagnostic(`${seconds.toFixed(1)} s  ${command}`);
  assert.deepEqual(
    steps.map(({ command }) => command).filter((command) => command.startsWith('postern ')),
    ['postern plugin new doorman', 'postern plugin test ./doorman', 'postern plugin check ./doorman', 'postern start'],
  );
  assert.equal(reply, '550 5.7.1 This sender is not welcome here');
  assert.match(page, /spam@example\.com/);
});
