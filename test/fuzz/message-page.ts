import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { statusOf } from '../core/http/raw-exchange.js';
import type { HttpFixture } from '../hostile/http-fixture.js';
import { payloads } from '../plugins/store/xss-payloads.js';
import { headerText } from './parsers.js';
import type { FuzzTarget } from './target.js';

const types = [
  'text/plain',
  'text/html',
  'multipart/mixed; boundary=b',
  'multipart/alternative; boundary="b"',
  'message/rfc822',
];
const part = fc
  .tuple(fc.constantFrom(...types), headerText, fc.array(fc.constantFrom(...payloads), { maxLength: 4 }), headerText)
  .map(([type, more, texts, rest]) => `Content-Type: ${type}\r\n${more}\r\n\r\n${texts.join('\r\n')}\r\n${rest}`);
const message = fc
  .tuple(headerText, fc.constantFrom(...types), fc.array(part, { maxLength: 5 }))
  .map(
    ([head, type, parts]) =>
      `${head}\r\nContent-Type: ${type}\r\n\r\n${parts.map((text) => `--b\r\n${text}\r\n`).join('')}--b--\r\n`,
  );

/** What must not stand in a page outside of text. */
const active =
  /<script(?![^>]* src="\/assets\/)|<[a-z][^<>"']*(?:"[^"]*"[^<>"']*|'[^']*'[^<>"']*)* on\w+=|(?:href|src|action)="(?:javascript|vbscript)/i;

/** Messages of pieces of MIME and of markup: every view answers, and nothing in it is more than text. */
export function messagePageTarget(fixture: () => HttpFixture): FuzzTarget {
  return {
    name: 'message-page',
    quickRuns: 8,
    property: fc.asyncProperty(message, async (text) => {
      const mailbox = join(fixture().server.folder, 'data', 'mail', 'localhost', 'postmaster');
      const id = `1795000000.M1P1Q${randomUUID()}.host`;
      const file = join(mailbox, 'cur', `${id}:2,`);
      await writeFile(file, Buffer.from(text, 'latin1'));
      const folder = '/store/localhost/postmaster/folders/INBOX';
      const path = `${folder}/messages/${id}`;
      for (const target of [
        folder,
        path,
        `${path}?view=headers`,
        `${path}?view=structure`,
        `${path}?view=raw`,
        `${path}/html`,
      ]) {
        const answer = await fixture().ask('GET', target, { headers: ['Accept: text/html'] });
        assert.ok([200, 404].includes(statusOf(answer)), `${target}: ${answer.slice(0, 300)}`);
        assert.equal(active.exec(answer)?.[0], undefined, target);
      }
      const json = await fixture().ask('GET', path, { headers: ['Accept: application/json'] });
      assert.equal(statusOf(json), 200);
      assert.ok((await readdir(join(mailbox, 'cur'))).includes(`${id}:2,`), 'nothing is deleted because it is odd');
      await rm(file);
    }),
  };
}
