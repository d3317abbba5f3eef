import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { HttpClient } from '../support/http-client.js';
import { freeListeners, ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const kills = 6;
const first = 100;

interface Viewed {
  readonly sections: readonly { readonly items: readonly { readonly key: string; readonly value: unknown }[] }[];
}

/** The n-th state of the source: its number stands in every file, and each second one has a file more. */
async function offer(central: string, state: number): Promise<void> {
  const next = `${central}.next`;
  await mkdir(join(next, 'base'), { recursive: true });
  await writeFile(join(next, 'base', 'a.json5'), `{ smtp: { limits: { recipients: ${state} } } }`);
  const ballast = 'x'.repeat(randomInt(1, 200_000));
  await writeFile(join(next, 'base', 'b.json5'), `// ${ballast}\n{ smtp: { limits: { hops: ${state} } } }`);
  if (state % 2 === 0) await writeFile(join(next, 'mail1.json5'), `{ shutdownSeconds: ${state} }`);
  const old = `${central}.old`;
  await rename(central, old).catch(() => undefined);
  await rename(next, central);
  await rm(old, { recursive: true, force: true });
}

async function valuesInForce(admin: HttpClient): Promise<readonly unknown[]> {
  const { sections } = (await admin.json('/config')) as Viewed;
  const items = sections.flatMap((section) => section.items);
  return ['smtp.limits.recipients', 'smtp.limits.hops', 'shutdownSeconds'].map(
    (key) => items.find((item) => item.key === key)?.value,
  );
}

/** The server looks by itself soon after its start, and takes one at a time. */
async function pull(admin: HttpClient): Promise<void> {
  for (;;) {
    const { status, text } = await admin.request('/config/sync', { method: 'POST', json: {} });
    if (status === 200) return;
    assert.equal(status, 409, text);
    await pause(20);
  }
}

const valuesOf = (state: number): readonly unknown[] => [state, state, state % 2 === 0 ? state : 20];

test('a server that is killed while it applies configuration runs on the old one or the new one', async (t) => {
  const folder = await temporaryFolder(t);
  const central = join(folder, 'central');
  const config = `{
    smtp: { listeners: ${freeListeners} },
    plugins: { config: { sync: { source: './central', server: 'mail1', intervalSeconds: 86400, apply: 'manual' } } },
  }`;
  let state = first;
  await offer(central, state);
  let server = await ServerProcess.start(t, { folder, config });
  await pull(HttpClient.admin(server.http));

  const met = { old: 0, new: 0 };
  for (let round = 0; round < kills; round += 1) {
    const admin = HttpClient.admin(server.http);
    await offer(central, (state += 1));
    const began = performance.now();
    await pull(admin);
    const took = performance.now() - began;
    assert.deepEqual(await valuesInForce(admin), valuesOf(state));

    await offer(central, state + 1);
    const cut = pull(admin).catch(() => undefined);
    await pause(randomInt(0, Math.ceil(took * 1.2)));
    await server.kill('SIGKILL');
    await cut;

    server = await ServerProcess.start(t, { folder, config });
    const again = HttpClient.admin(server.http);
    const [recipients] = await valuesInForce(again);
    assert.ok(recipients === state || recipients === state + 1, `${String(recipients)} after ${state}`);
    assert.deepEqual(await valuesInForce(again), valuesOf(recipients));
    met[recipients === state ? 'old' : 'new'] += 1;

    await pull(again);
    state += 1;
    assert.deepEqual(await valuesInForce(again), valuesOf(state));
  }

  await offer(central, (state += 1));
  await pull(HttpClient.admin(server.http));
  const left = await readdir(join(folder, 'data', 'config'));
  assert.equal(left.length, 2, `${left.join(' ')}: the link and what it leads to`);
  t.diagnostic(`the old state ${met.old} times, the new one ${met.new} times`);
});
