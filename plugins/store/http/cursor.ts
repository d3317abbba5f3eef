import { problem } from '../../../core/problem.js';
import type { OrderKey } from '../maildir/message-entry.js';

/** A place between two messages of a list: behind (`after`) or in front of (`before`) the message of that key. */
export interface Cursor extends OrderKey {
  readonly side: 'after' | 'before';
}

/** It names a message, not a position: mail that arrives or goes moves nothing. The message itself may be gone. */
export function writeCursor(cursor: Cursor): string {
  const text = `${cursor.side === 'after' ? 'a' : 'b'}${cursor.receivedAt}/${cursor.id}`;
  return Buffer.from(text, 'utf8').toString('base64url');
}

const written = /^([ab])(\d{1,14}(?:\.\d{1,12})?)\/(.{1,255})$/s;

/** @throws Problem `bad-request` */
export function readCursor(text: string): Cursor {
  const match = text.length > 500 ? null : written.exec(Buffer.from(text, 'base64url').toString('utf8'));
  if (match === null) throw problem('bad-request', { detail: 'That is no cursor of this list.' });
  const [, side, receivedAt, id = ''] = match;
  return { side: side === 'a' ? 'after' : 'before', receivedAt: Number(receivedAt), id };
}
