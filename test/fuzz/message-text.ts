import assert from 'node:assert/strict';
import { readdir, readFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import type { SmtpFixture } from '../hostile/smtp-fixture.js';
import type { SmtpClient } from '../support/smtp-client.js';
import { behindTrace } from '../support/mailbox-reader.js';
import type { FuzzTarget } from './target.js';
import { cut, cuts, decoded, wireText } from './wire-text.js';

/** The new messages, which are taken away so that the next run finds its own. */
async function take(fixture: SmtpFixture): Promise<readonly string[]> {
  const folder = join(fixture.server.folder, 'data', 'mail', 'localhost', 'postmaster', 'new');
  const files = (await readdir(folder)).map((name) => join(folder, name));
  const messages = await Promise.all(files.map((file) => readFile(file)));
  await Promise.all(files.map((file) => unlink(file)));
  return messages.map((message) => behindTrace(message).toString('latin1'));
}

async function writeCut(client: SmtpClient, wire: string, places: readonly number[]): Promise<void> {
  for (const segment of cut(wire, places)) {
    if (segment === '') continue;
    client.write(Buffer.from(segment, 'latin1'));
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/**
 * Message text in any segmentation: what a naive decoder makes of it stands in the Maildir, byte for byte, exactly when
 * the answer is 250; and what follows the text is read as commands, each with its answer.
 */
export function messageTextTarget(fixture: () => SmtpFixture): FuzzTarget {
  return {
    name: 'message-text',
    quickRuns: 60,
    property: fc.asyncProperty(wireText, cuts, async (wire, places) => {
      await take(fixture());
      const client = await fixture().atData();
      const { text } = decoded(wire);
      const end = wire.length - decoded(wire).rest.length;
      await writeCut(client, `${wire.slice(0, end)}NOOP\r\nVRFY x\r\n`, places);
      const codes = (await client.readReplies(3)).map(({ code }) => code);
      assert.deepEqual(codes, [text.includes('\0') ? 554 : 250, 250, 252]);
      assert.equal(client.unread, '');
      client.close();
      assert.deepEqual(await take(fixture()), text.includes('\0') ? [] : [text]);
    }),
  };
}

/** The same for chunks of any size: only line ends have a meaning, and every chunk has one answer. */
export function messageChunksTarget(fixture: () => SmtpFixture): FuzzTarget {
  return {
    name: 'message-chunks',
    quickRuns: 60,
    property: fc.asyncProperty(wireText, cuts, cuts, async (wire, chunks, segments) => {
      await take(fixture());
      const client = await fixture().greeted();
      const parts = cut(wire, chunks);
      const dialogue = [
        'MAIL FROM:<a@sender.example>\r\nRCPT TO:<postmaster@localhost>\r\n',
        ...parts.map((part, index) => `BDAT ${part.length}${index < parts.length - 1 ? '' : ' LAST'}\r\n${part}`),
        'NOOP\r\nVRFY x\r\n',
      ];
      await writeCut(client, dialogue.join(''), segments);
      const codes = (await client.readReplies(parts.length + 4)).map(({ code }) => code);
      const refusedFrom = wire.includes('\0') ? parts.findIndex((part) => part.includes('\0')) : parts.length;
      const expected = parts.map((_, index) => (index < refusedFrom ? 250 : 554));
      assert.deepEqual(codes, [250, 250, ...expected, 250, 252]);
      assert.equal(client.unread, '');
      client.close();
      const text = wire.replaceAll(/\r\n|\r|\n/g, '\r\n');
      assert.deepEqual(await take(fixture()), refusedFrom < parts.length ? [] : [text]);
    }),
  };
}
