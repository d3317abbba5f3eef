import { pipeline, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { Splitter } from '@zone-eu/mailsplit';
import { change, definePlugin, next, z } from 'postern/plugin';

/** @typedef {import('@zone-eu/mailsplit').MimeNode} MimeNode */

const Options = z.strictObject({
  text: z.string().min(1).max(10_000).describe('What is put below the text of a mail.'),
  html: z.string().max(100_000).optional().describe('The same for the HTML of a mail; made of `text` if absent.'),
});
const maxTextBytes = 1_000_000; // of a part, in memory
const fields = ['Content-Transfer-Encoding', 'Content-Type', 'MIME-Version'];
const sealed = /^(multipart\/(signed|encrypted)|application\/(x-)?pkcs7-mime)$/;
const isOneOf =
  (/** @type {readonly string[]} */ names) =>
  (/** @type {readonly [string, string]} */ [name]) =>
    names.some((one) => one.toLowerCase() === name.toLowerCase());

/** Puts a footer below the mail that users send. */
export const footer = definePlugin({
  name: 'footer',
  options: Options,
  setup({ smtp }, { options: given }) {
    let options = given;
    smtp.on('message', { order: 'content', signedIn: true }, async ({ message }) => {
      // A signature of DKIM or ARC would not be good any more.
      if (message.headers.some(isOneOf(['DKIM-Signature', 'ARC-Message-Signature']))) return next();
      const described = message.headers.filter(isOneOf([...fields, 'Content-Disposition']));
      const head = `${described.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`;
      const [root] = await Readable.from(new Splitter().end(head)).take(1).toArray();
      const footers = new Footers(options);
      if (root.multipart && !sealed.test(root.contentType)) {
        return change({ change: 'body', write: (body) => inParts(Readable.from(following(head, body)), footers) });
      }
      if (!footers.isFor(root) || message.size > maxTextBytes) return next();
      const content = await buffer(message.open());
      const text = await footers.below(content.subarray(content.indexOf('\r\n\r\n') + 4), root);
      if (text === undefined) return next();
      root.headers.update('MIME-Version', '1.0');
      const values = fields.map((name) => ({ name, value: root.headers.getFirst(name) }));
      return change(
        ...values.map(({ name }) => /** @type {const} */ ({ change: 'remove-header', name })),
        ...values.map((field) => /** @type {const} */ ({ change: 'add-header', ...field })),
        { change: 'body', write: () => Readable.from([text]) },
      );
    });
    return { reconfigure: (next) => void (options = next) };
  },
});

async function* following(/** @type {string} */ head, /** @type {AsyncIterable<Buffer>} */ body) {
  yield Buffer.from(head);
  yield* body;
}

/** The body of a message, with a footer in its first text and its first HTML; everything else byte by byte. */
async function* inParts(/** @type {Readable} */ message, /** @type {Footers} */ footers) {
  const splitter = pipeline(message, new Splitter({ ignoreEmbedded: true }), () => undefined);
  let text = /** @type {{ node: MimeNode, chunks: Buffer[], bytes: number } | undefined} */ (undefined);
  for await (const piece of splitter) {
    if (text && piece.type === 'body' && text.bytes <= maxTextBytes) {
      text.chunks.push(piece.value);
      text.bytes += piece.value.length;
      continue;
    }
    if (text) yield* await footers.part(text);
    text = piece.type === 'node' && footers.isFor(piece) ? { node: piece, chunks: [], bytes: 0 } : undefined;
    if (piece.type !== 'node') yield piece.value;
    else if (!text && !piece.root) yield piece.getHeaders();
  }
  if (text) yield* await footers.part(text);
}

/** What one message gets: each footer once. */
class Footers {
  #left;

  constructor(/** @type {z.output<typeof Options>} */ { text, html = `<p>${escaped(text)}</p>` }) {
    this.#left = new Map([['text/plain', text.replaceAll(/\r?\n/g, '\r\n')]]).set('text/html', html);
  }

  isFor(/** @type {MimeNode} */ { contentType, disposition, parentNode }) {
    for (let at = parentNode; at; at = at.parentNode) if (sealed.test(at.contentType || '')) return false;
    return this.#left.has(contentType || 'text/plain') && disposition !== 'attachment';
  }

  /** The header and the content of a part. */
  async part(/** @type {{ node: MimeNode, chunks: Buffer[], bytes: number }} */ { node, chunks, bytes }) {
    const text = bytes > maxTextBytes ? undefined : await this.below(Buffer.concat(chunks), node);
    return [node.getHeaders(), ...(text === undefined ? chunks : [text])];
  }

  /** The content with the footer, in UTF-8 and base64, as the node says then; undefined when it has to stay. */
  async below(/** @type {Buffer} */ content, /** @type {any} */ node) {
    const type = node.contentType || 'text/plain';
    let text = '';
    try {
      const plain = await buffer(node.getDecoder().end(content));
      text = new TextDecoder(node.charset || 'utf-8', { fatal: true }).decode(plain);
    } catch {
      return undefined; // the bytes are not of that charset, or nobody knows it
    }
    if (text.includes('-----BEGIN PGP ')) return undefined;
    const found = type === 'text/html' ? text.search(/<\/body>/i) : -1;
    const end = found < 0 ? text.length : found;
    const between = type === 'text/html' ? '' : text.endsWith('\n') ? '\r\n' : '\r\n\r\n';
    node.setCharset('utf-8');
    node.headers.update('Content-Transfer-Encoding', 'base64');
    const whole = `${text.slice(0, end)}${between}${this.#left.get(type)}\r\n${text.slice(end)}`;
    this.#left.delete(type);
    return Buffer.from(whole)
      .toString('base64')
      .replaceAll(/.{76}(?=.)/g, '$&\r\n');
  }
}

const escaped = (/** @type {string} */ text) =>
  text.replaceAll(/[<>&"]/g, (letter) => `&#${letter.charCodeAt(0)};`).replaceAll(/\r?\n/g, '<br>\r\n');
