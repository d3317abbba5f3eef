import assert from 'node:assert/strict';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { lockFolder } from '../../../../core/disk/lock.js';
import { stallFile, type StallRecord } from '../../../../core/watchdog/stall-record.js';
import { freePort } from '../../../support/free-port.js';
import { HandClock } from '../../../support/hand-clock.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { Examined } from '../examined.js';

const since = '2026-11-21T10:00:00.000Z';

const stall = (change: Partial<StallRecord>): StallRecord => ({
  pid: process.pid,
  since,
  until: null,
  outcome: 'lasts',
  plugin: 'looper',
  doing: 'hook rcptTo',
  frames: ['check (file:///srv/looper/index.js:7:9)'],
  ...change,
});

/** What is found of a server that is this process, as its lock says it. */
async function found(t: TestContext, stalls: readonly StallRecord[], http?: string | null) {
  const folder = await temporaryFolder(t);
  const data = join(folder, 'data');
  await mkdir(data, { mode: 0o700 });
  await chmod(data, 0o700);
  await writeFile(join(data, stallFile), JSON.stringify({ stalls }), { mode: 0o600 });
  if (http !== undefined) {
    const lock = await lockFolder(data, { http: null });
    await lock.update({ http, token: 'geheim' });
    t.after(() => lock.release());
  }
  const clock = new HandClock(Date.parse(since) + 40_000);
  const examined = await Examined.of(t, `{ http: { port: 0 }, smtp: { listeners: [{ port: 0 }] } }`, { folder, clock });
  assert.ok(!JSON.stringify(examined.findings).includes('geheim'));
  return examined;
}

describe('what the doctor finds of a server', { concurrency: 4 }, () => {
  test('that starts, and whose plugin does not come back from its setup', async (t) => {
    assert.match(
      (await found(t, [], null)).of('server').join(),
      /^ok: The server \(process \d+\) has been starting for/,
    );
    const stuck = await found(t, [stall({ doing: 'setup' })], null);
    assert.match(stuck.of('server').join(), /^problem: .* has answered nothing for 40 s.*setup of the plugin looper/);
  });

  test('that does not answer, with and without a record of why', async (t) => {
    const http = `http://127.0.0.1:${await freePort()}`;
    assert.match(
      (await found(t, [], http)).of('server').join(),
      /^problem: The server \(process \d+\) runs, but it does not answer at http.*kill -9 \d+/,
    );
    const known = await found(t, [stall({})], http);
    assert.match(
      known.of('server').join(),
      /^problem: .*hook rcptTo of the plugin looper, at check \(file:.*"looper": false/,
    );
    assert.deepEqual(known.of('stalls'), []);
    const native = await found(t, [stall({ plugin: null, doing: null, frames: [] })], http);
    assert.match(native.of('server').join(), /unknown code does not come back/);
  });

  test('that is gone: how its runs ended, the last three of the week', async (t) => {
    const over = stall({ outcome: 'over', until: '2026-11-21T10:00:12.000Z' });
    const killed = stall({ outcome: 'killed', since: '2026-11-20T10:00:00.000Z' });
    const old = stall({ outcome: 'ended', since: '2026-11-01T10:00:00.000Z', until: '2026-11-01T11:00:00.000Z' });
    const told = (await found(t, [stall({ pid: 1 }), over, killed, old])).of('stalls');
    assert.equal(told.length, 3);
    assert.match(
      told[0] ?? '',
      /^advice: A run of the server ended while nothing was answered.* → Mend the plugin looper/,
    );
    assert.match(told[1] ?? '', /^advice: Nothing was answered for 12 s from/);
    assert.match(told[2] ?? '', /^advice: A run of the server was ended by the watchdog/);
  });
});
