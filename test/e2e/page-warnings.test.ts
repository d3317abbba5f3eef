import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { startInProcess } from '../support/in-process-server.js';
import { adminPassword } from '../support/server-process.js';

test('pages that a signed-in browser gets as a stream leave no warning of Node.js in the log', async (t) => {
  const { base } = await startInProcess(t);
  const warnings: string[] = [];
  const note = (warning: Error): void => void warnings.push(warning.message);
  process.on('warning', note);
  t.after(() => process.off('warning', note));
  const signedIn = await fetch(`${base}/sign-in`, {
    method: 'POST',
    body: new URLSearchParams({ username: 'admin', password: adminPassword }),
    headers: { Accept: 'text/html', Origin: base, 'Sec-Fetch-Site': 'same-origin' },
    redirect: 'manual',
  });
  assert.equal(signedIn.status, 303);
  const cookie = signedIn.headers.get('set-cookie')?.split(';')[0] ?? '';
  const headers = { Accept: 'text/html', Cookie: cookie, 'Accept-Encoding': 'gzip' };
  for (const path of ['/logs', '/search?q=hello', '/health/extended', '/']) {
    const answer = await fetch(base + path, { headers });
    assert.equal(answer.status, 200);
    await answer.text();
  }
  await setImmediate();
  assert.deepEqual(warnings, []);
});
