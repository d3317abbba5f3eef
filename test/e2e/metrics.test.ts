import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { startInProcess } from '../support/in-process-server.js';
import { findPeer, skipWithout } from '../support/peers.js';

test('Prometheus reads the metrics and has nothing to complain of', { skip: skipWithout('promtool') }, async (t) => {
  const server = await startInProcess(t);
  await deliver(server.portOf('mx'), lines('Subject: counted', '', 'hello'));
  const { text, headers } = await server.admin.request('/metrics/prometheus');
  assert.match(headers.get('content-type') ?? '', /^text\/plain; version=0\.0\.4/);
  const { status, stdout, stderr } = spawnSync(findPeer('promtool') ?? '', ['check', 'metrics'], {
    input: text,
    encoding: 'utf8',
  });
  assert.deepEqual({ status, stdout, stderr }, { status: 0, stdout: '', stderr: '' });
});
