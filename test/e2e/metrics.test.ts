import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { GraphiteReceiver } from '../support/graphite-receiver.js';
import { startInProcess } from '../support/in-process-server.js';
import { readOpenMetrics } from '../support/openmetrics-reader.js';
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

const openMetrics = 'application/openmetrics-text; version=1.0.0';

test('a reader of OpenMetrics finds no breach, and the same numbers as in the other format', async (t) => {
  const server = await startInProcess(t);
  await deliver(server.portOf('mx'), lines('Subject: counted', '', 'hello'));
  const { text, headers } = await server.admin.request('/metrics/prometheus', { accept: openMetrics });
  assert.match(headers.get('content-type') ?? '', /^application\/openmetrics-text; version=1\.0\.0/);
  const families = readOpenMetrics(text);
  const accepted = families.find(({ name }) => name === 'postern_mail_accepted');
  assert.deepEqual([accepted?.type, accepted?.samples[0]?.value], ['counter', 1]);
  assert.ok(families.every(({ help }) => help !== undefined && help !== ''));
  const plain = (await server.admin.request('/metrics/prometheus')).text;
  assert.deepEqual(
    families.map(({ name }) => name),
    [...plain.matchAll(/^# TYPE (\S+?)(?:_total)? /gm)].map(([, name]) => name),
  );
  assert.match(plain, /^postern_mail_accepted_total\{listener="mx"\} 1$/m);
  // The two are of different moments, and a series with labels is there only when something has been counted.
  const named = new Set([...plain.matchAll(/^([a-z][a-z0-9_]*)/gm)].map(([, name]) => name));
  const steady = families.flatMap(({ samples }) => samples.filter(({ labels }) => Object.keys(labels).length === 0));
  assert.ok(steady.length > 20);
  assert.deepEqual(
    steady.filter(({ name }) => !named.has(name)),
    [],
  );
});

test('the reader of OpenMetrics sees a breach', () => {
  for (const text of [
    '# TYPE a gauge\na 1\n',
    '# TYPE a counter\na 1\n# EOF\n',
    '# TYPE a gauge\na{b="c",b="d"} 1\n# EOF\n',
    '# TYPE a gauge\na{b="\\q"} 1\n# EOF\n',
    '# TYPE a gauge\na nan\n# EOF\n',
    '# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE a gauge\n# EOF\n',
    '# TYPE a gauge\na 1\na 2\n# EOF\n',
    '# TYPE a histogram\na_bucket{le="1"} 2\na_bucket{le="+Inf"} 1\na_sum 1\na_count 1\n# EOF\n',
  ])
    assert.throws(() => readOpenMetrics(text), Error, text);
  assert.equal(readOpenMetrics('# HELP a b\n# TYPE a counter\na_total{c="\\"\\n"} 1e3\n# EOF\n').length, 1);
});

test('a Graphite takes every line, each series once', async (t) => {
  const server = await startInProcess(t);
  const hostile = '<a=b;c~d e\u00e9>';
  await deliver(server.portOf('mx'), lines(`Subject: ${hostile}`, '', 'hello'));
  await server.admin.request(`/none/${encodeURIComponent(hostile)}`);
  const receiver = await GraphiteReceiver.start(t);
  const { text } = await server.admin.request('/metrics/graphite?prefix=site.mx1');
  const socket = connect(receiver.port, '127.0.0.1').resume();
  socket.end(text);
  await once(socket, 'close');
  assert.deepEqual(receiver.complaints, []);
  assert.equal(receiver.points.length, text.split('\n').length - 1);
  const series = receiver.points.map(({ path, tags }) =>
    JSON.stringify([path, Object.entries(tags).toSorted(([a], [b]) => (a < b ? -1 : 1))]),
  );
  assert.equal(new Set(series).size, series.length);
  assert.ok(receiver.points.every(({ path }) => path.startsWith('site.mx1.')));
  const accepted = receiver.points.find(({ path }) => path === 'site.mx1.mail.accepted.total');
  assert.deepEqual([accepted?.tags, accepted?.value], [{ listener: 'mx' }, 1]);
});
