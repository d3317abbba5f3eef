import { Semaphore } from '../../../core/concurrency.js';
import type {
  DecodedPart,
  LooseMessage,
  LoosePage,
  MessageViewer,
  ViewedMessage,
} from '../../../core/contracts/message-viewer.js';
import { problem } from '../../../core/problem.js';
import { viewMessage } from '../messages/message-view.js';
import { isUnparsed, type MessageParser, type Parse } from '../mime/message-parser.js';
import { summarise } from '../mime/summary.js';
import { contentPage, defaultView } from './view-model.js';

/** Messages in memory at a time. */
const maxRead = 2;
/** Of a larger message only the beginning is read and shown. */
const maxBytes = 64 * 1024 * 1024;
const summaryBytes = 64 * 1024;
const rawHeadBytes = 256 * 1024;
/** As much as is shown of a header. */
const headBytes = 1024 * 1024;

interface ReadMessage {
  /** Belongs to the parse thread as soon as it is parsed. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly head: Buffer;
  readonly size: number;
}

/** Shows messages of other plugins, read into memory one or two at a time. */
export class LooseMessageViewer implements MessageViewer {
  readonly #parser: MessageParser;
  readonly #reading = new Semaphore(maxRead);

  constructor(parser: MessageParser) {
    this.#parser = parser;
  }

  view(message: LooseMessage): Promise<ViewedMessage> {
    return this.#with(message, view);
  }

  page(message: LooseMessage, { path, rawHref, view: wanted, remote }: LoosePage): Promise<object> {
    return this.#with(message, async (read, parse) => {
      const viewed = await view(read, parse);
      const shown = wanted ?? defaultView(viewed);
      const cut = read.size > rawHeadBytes;
      const raw = shown === 'raw' ? { bytes: read.head.subarray(0, rawHeadBytes), cut } : undefined;
      return { ...viewed, ...contentPage(viewed, { path, rawHref, view: shown, remote, raw, list: '' }) };
    });
  }

  html(message: LooseMessage, remote: boolean): Promise<string> {
    return this.#with(message, async ({ bytes, size }, parse) => {
      const found = await parse<'html'>({ kind: 'html', bytes, size, remote });
      if (isUnparsed(found)) throw unparsed();
      return found.document ?? '';
    });
  }

  part(message: LooseMessage, part: string): Promise<DecodedPart> {
    return this.#with(message, async ({ bytes, size }, parse) => {
      const found = await parse<'part'>({ kind: 'part', bytes, size, part });
      if (isUnparsed(found)) throw unparsed();
      if (found.bytes === null) throw problem('not-found', 'There is no such part in this message.');
      return { ...found, bytes: found.bytes };
    });
  }

  /** Only one message of strangers lies in memory, beside those that pages show. */
  #with<T>(message: LooseMessage, use: (read: ReadMessage, parse: Parse) => Promise<T>): Promise<T> {
    const parser = this.#parser;
    const { strangerAddress } = message;
    if (strangerAddress === undefined) return this.#withPermit(async () => use(await read(message), parser.parse));
    return parser.forStranger(strangerAddress, async (parse) => use(await read(message), parse));
  }

  async #withPermit<T>(work: () => Promise<T>): Promise<T> {
    await this.#reading.acquire();
    try {
      return await work();
    } finally {
      this.#reading.release();
    }
  }
}

function view({ bytes, head, size }: ReadMessage, parse: Parse): Promise<ViewedMessage> {
  const summary = { ...summarise(head.subarray(0, summaryBytes), size), size };
  const source = { source: { bytes, size }, head: (most: number) => Promise.resolve(head.subarray(0, most)) };
  return viewMessage(parse, source, summary);
}

const unparsed = () => problem('not-found', 'This message could not be parsed; its raw form can be read.');

async function read(message: LooseMessage): Promise<ReadMessage> {
  const { size } = message;
  const bytes = new Uint8Array(Math.min(size, maxBytes));
  let length = 0;
  const stream = await message.open();
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    const piece = chunk.subarray(0, bytes.length - length);
    bytes.set(piece, length);
    length += piece.length;
    if (size > maxBytes && length === bytes.length) break;
  }
  return { bytes, head: Buffer.from(bytes.subarray(0, headBytes)), size };
}
