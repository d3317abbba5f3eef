import type { SpooledMessage, SpoolWriter } from '../spool/spool.js';
import { encodedMessage, maxLineOctets, planEncoding } from '../mime/transfer-encoding.js';
import { reply, type Reply } from '../smtp/protocol/replies.js';

/** What happens to submitted mail with lines over 998 octets. */
export type LongLinePolicy = 'encode' | 'refuse' | 'pass';

/** Detects a line over 998 octets in streamed text. */
export class LongLineWatch {
  #column = 0;
  #found = false;

  get found(): boolean {
    return this.#found;
  }

  add(chunk: Buffer): void {
    let at = 0;
    for (let end = chunk.indexOf(10); end >= 0 && !this.#found; end = chunk.indexOf(10, at)) {
      this.#count(end - at);
      this.#column = 0;
      at = end + 1;
    }
    this.#count(chunk.length - at);
  }

  /** Includes the CR of its end. */
  #count(octets: number): void {
    this.#column += octets;
    if (this.#column > maxLineOctets + 1) this.#found = true;
  }
}

/**
 * The message with its long lines encoded (RFC 5321 §4.5.3.1.6), in place of the given one, which is released; or the
 * reason why that is impossible. When it rejects, both are released.
 */
export async function withShortLines(
  message: SpooledMessage,
): Promise<{ readonly message: SpooledMessage } | { readonly refusal: Reply }> {
  const open = (): AsyncIterable<Buffer> => message.open(message.messageOffset);
  let writer: SpoolWriter | undefined;
  try {
    const plan = await planEncoding(open(), 'short-lines');
    if (plan.outcome === 'as-it-is') return { message };
    if (plan.outcome === 'encode') {
      writer = await message.replacement();
      for await (const chunk of encodedMessage(open(), plan)) await writer.write(chunk);
      const encoded = await writer.finish();
      await message.release();
      return { message: encoded };
    }
    await message.release();
    const text = `The message has a line over ${maxLineOctets} octets, which cannot be encoded: ${plan.reason}`;
    return { refusal: reply(554, '5.6.0', text) };
  } catch (error) {
    await writer?.discard();
    await message.release();
    throw error;
  }
}
