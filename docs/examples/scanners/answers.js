import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';

const mostBytes = 1_000_000;

/** @typedef {{ what: 'refuse' | 'later' | 'away' | 'fine', why: string, marks?: import('postern/plugin').Change[] }} Finding */

/** What a scanner says, as text; an endless answer is none. */
export const bounded = (/** @type {any} */ body) =>
  text(
    Readable.from(
      (async function* () {
        let bytes = 0;
        for await (const piece of body) {
          if ((bytes += piece.length) > mostBytes) throw new Error('the answer is too long');
          yield piece;
        }
      })(),
    ),
  );

/** One line that a reply may carry. */
export const plain = (/** @type {string} */ words) => words.replaceAll(/[^ -~]+/g, ' ').slice(0, 200);
