import assert from 'node:assert/strict';
import { test } from 'node:test';
import { messageIdOf } from '../../../core/mime/header.js';

const of = (...lines: readonly string[]): string | undefined => messageIdOf(Buffer.from(lines.join('\r\n')));

test('the Message-ID is found anywhere in the header, folded or not', () => {
  assert.equal(of('Message-ID: <a@b.example>', 'Subject: x', '', 'body'), '<a@b.example>');
  assert.equal(of('Subject: x', 'message-id:<a@b.example>', '', 'body'), '<a@b.example>');
  assert.equal(of('Subject: x', 'Message-Id :', ' <a@b.example>', '', 'body'), '<a@b.example>');
  assert.equal(of('Subject: x', 'Message-ID: <ä@b.example> comment', ''), '<ä@b.example>');
});

test('what is no Message-ID, and one in the body, is none', () => {
  assert.equal(of('Subject: x', '', 'Message-ID: <body@b.example>'), undefined);
  assert.equal(of('X-Message-ID: <a@b.example>', ''), undefined);
  assert.equal(of('Message-ID: a@b.example', ''), undefined);
  assert.equal(of(`Message-ID: <${'a'.repeat(300)}@b.example>`, ''), undefined);
  assert.equal(of('Message-ID: <a b@c>', ''), undefined);
  assert.equal(of(''), undefined);
});
