import assert from 'node:assert/strict';
import { mkdir, open } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { monitoring } from '../../../plugins/monitoring/index.js';
import { configurationOf, openPluginSite } from '../plugin-site.js';

interface Answer {
  readonly items: readonly { line: { msg: string } }[];
  readonly nextCursor: string | null;
}

test('a log without line ends counts as looked at, and the cursor leads through it', async (t) => {
  const options = { logs: { maxSearchBytes: 8 * 1024 * 1024 } };
  const site = await openPluginSite(t, monitoring, { configuration: configurationOf([]), options });
  const look = async (query: string): Promise<Answer> => (await site.json(`/logs?q=the${query}`)) as unknown as Answer;
  const said = (answer: Answer | undefined) => answer?.items.map(({ line: { msg } }) => msg);
  const name = 'postern-2026-11-20.log';
  await mkdir(join(site.data, 'logs'), { recursive: true });
  const file = await open(join(site.data, 'logs', name), 'w');
  const line = (msg: string) => `${JSON.stringify({ level: 'info', time: '2026-11-20T09:00:00.000Z', msg })}\n`;
  await file.write(line('the oldest'));
  const hole = 40 * 1024 * 1024;
  await file.write(`\n${line('the newest')}`, hole);
  await file.close();
  const rounds: Answer[] = [await look('')];
  for (let next = rounds[0]?.nextCursor; next != null; next = rounds.at(-1)?.nextCursor) {
    rounds.push(await look(`&cursor=${next}`));
    assert.ok(rounds.length < 10);
  }
  assert.ok(rounds.length >= 5, `${rounds.length} rounds`);
  assert.deepEqual(said(rounds[0]), ['the newest']);
  assert.deepEqual(said(rounds.at(-1)), ['the oldest']);
});
