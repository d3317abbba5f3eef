import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { startInProcess } from '../support/in-process-server.js';
import { listMessages } from '../support/mailbox-reader.js';

const part = (type: string, content: string): readonly string[] => ['--b', `Content-Type: ${type}`, '', content];

test('F-M5 a part has its own type where that is safe, and is saved where it is not', async (t) => {
  const server = await startInProcess(t);
  const parts = [
    'image/png',
    'image/svg+xml',
    'text/plain; charset=utf-8',
    'text/html',
    'application/pdf',
    'application/javascript',
  ];
  await deliver(
    server.portOf('mx'),
    lines(
      'Subject: parts',
      'MIME-Version: 1.0',
      'Content-Type: multipart/mixed; boundary=b',
      '',
      ...parts.flatMap((type) => part(type, 'x')),
      '--b--',
    ),
  );
  const [message] = await listMessages(server.admin);
  const seen: string[] = [];
  for (const number of [1, 2, 3, 4, 5, 6]) {
    const path = `/store/localhost/postmaster/folders/INBOX/messages/${encodeURIComponent(message?.id ?? '')}/parts/${number}`;
    const { headers } = await server.admin.request(path);
    assert.equal(headers.get('x-content-type-options'), 'nosniff');
    seen.push(`${headers.get('content-type')} ${(headers.get('content-disposition') ?? '').split(';')[0]}`);
  }
  assert.deepEqual(seen, [
    'image/png inline',
    'application/octet-stream attachment',
    'text/plain; charset=utf-8 inline',
    'text/plain; charset=utf-8 attachment',
    'application/pdf attachment',
    'application/octet-stream attachment',
  ]);
});
