import assert from 'node:assert/strict';
import { readdir, readFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import type { SmtpFixture } from '../hostile/smtp-fixture.js';
import { behindTrace } from '../support/mailbox-reader.js';
import type { FuzzTarget } from './target.js';
import { cut, cuts, decoded, wireText } from './wire-text.js';

/**
 * Message text in any segmentation: what a naive decoder makes of it stands in the Maildir, byte for byte, exactly when
 * the answer is 250; and what follows the text is read as commands, each with its answer.
 */
export function messageTextTarget(fixture: () => SmtpFixture): FuzzTarget {
  const folder = () => join(fixture().server.folder, 'data', 'mail', 'localhost', 'postmaster', 'new');
  /** The new messages, which are taken away so that the next run finds its own. */
  const take = async (): Promise<readonly string[]> => {
    const files = (await readdir(folder())).map((name) => join(folder(), name));
    const messages = await Promise.all(files.map((file) => readFile(file)));
    await Promise.all(files.map((file) => unlink(file)));
    return messages.map((message) => behindTrace(message).toString('latin1'));
  };
  return {
    name: 'message-text',
    quickRuns: 60,
    property: fc.asyncProperty(wireText, cuts, async (wire, places) => {
      await take();
      const client = await fixture().atData();
      const { text } = decoded(wire);
      const end = wire.length - decoded(wire).rest.length;
      for (const segment of cut(`${wire.slice(0, end)}NOOP\r\nVRFY x\r\n`, places)) {
        if (segment === '') continue;
        client.write(Buffer.from(segment, 'latin1'));
        await new Promise((resolve) => setImmediate(resolve));
      }
      const codes = (await client.readReplies(3)).map(({ code }) => code);
      assert.deepEqual(codes, [text.includes('\0') ? 554 : 250, 250, 252]);
      assert.equal(client.unread, '');
      client.close();
      assert.deepEqual(await take(), text.includes('\0') ? [] : [text]);
    }),
  };
}
