import { decode, encode } from 'dns-packet';
import JSON5 from 'json5';
import sasl from 'smtp-server/lib/sasl.js';
import { Readable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { generateKeyPairSync } from 'node:crypto';
import { refillForm } from '../../core/http/form-refill.js';
import { sanitizeLine } from '../../core/log/line.js';
import { parseAddressList } from '../../core/mime/address-list.js';
import { messageIdOf, scanHeader } from '../../core/mime/header.js';
import { LineEndings } from '../../core/mime/line-endings.js';
import { encodedMessage, planEncoding } from '../../core/mime/transfer-encoding.js';
import { DataDecoder } from '../../core/smtp/server/dot-decoder.js';
import { parseProxyHeader } from '../../core/smtp/server/proxy-header.js';
import { compilePattern } from '../../core/text/pattern.js';
import { dkimFields } from '../../plugins/client-queue/delivery/dkim-signature.js';
import { ReplyClassification } from '../../plugins/client-queue/delivery/reply-classification.js';
import { composeDsn } from '../../plugins/client-queue/dsn/dsn.js';
import { parsePolicy } from '../../plugins/client-queue/mta-sts/policy.js';
import { viewMessage } from '../../plugins/store/messages/message-view.js';
import { summarise } from '../../plugins/store/mime/summary.js';
import { signatureClaims } from '../../plugins/tls-reports/signature-claims.js';
import type { HoldUpRow } from './hold-up-row.js';

const kb = 1024;
const mb = 1024 * kb;

/** Ordinary text, repeated up to a size. */
const filled = (text: string, bytes: number): string => text.repeat(Math.ceil(bytes / text.length)).slice(0, bytes);
const times = (count: number, line: (n: number) => string): string =>
  Array.from({ length: count }, (_, n) => line(n)).join('');

/** Work on an input that is there before. */
const on =
  <T>(input: T, work: (input: T) => unknown) =>
  () =>
    work(input);

const words = 'ordinary words in a row, and more of them in the same line\r\n';
const head = 'From: Anna <anna@example.org>\r\nTo: ben@example.net\r\nSubject: hello\r\n';
const encodedWords = (bytes: number): string =>
  filled('=?utf-8?q?caf=C3=A9_and_more?= =?iso-8859-1?b?Y2Fm6Q==?=\r\n ', bytes).trimEnd();
const addresses = (bytes: number): string => filled('"Some One" <someone@example.net>,\r\n ', bytes).trimEnd();

/** Headers of 1 MiB, the most that is taken; of a longer field 256 KB are read. */
const headers: Readonly<Record<string, string>> = {
  'encoded words': `${head}${times(16, (n) => `X-${n}: ${encodedWords(60 * kb)}\r\n`)}\r\n`,
  recipients: `${head}${times(4, () => `To: ${addresses(250 * kb)}\r\n`)}\r\n`,
  'many fields': `${head}${times(2000, (n) => `X-${n}: ${filled('some words ', 480)}\r\n`)}\r\n`,
  'bytes above ASCII': `${head}${times(4, (n) => `X-${n}: ${filled('\xe4\xf6\xfc\x80 words ', 250 * kb)}\r\n`)}\r\n`,
};

function viewed(text: string): () => Promise<unknown> {
  const bytes = Buffer.from(text, 'latin1');
  return () =>
    viewMessage(
      () => Promise.resolve({ unparsed: 'failed' }),
      { source: { fd: -1, size: bytes.length }, head: (most) => Promise.resolve(bytes.subarray(0, most)) },
      summarise(bytes.subarray(0, 64 * kb), bytes.length),
    );
}

/** In chunks with turns of the event loop between them, as a file is read. */
function stream(text: string): () => Readable {
  const bytes = Buffer.from(text, 'latin1');
  return () =>
    Readable.from(
      (async function* chunks() {
        for (let at = 0; at < bytes.length; at += 64 * kb) {
          await nextTurn();
          yield bytes.subarray(at, at + 64 * kb);
        }
      })(),
    );
}

const mimeRows: readonly HoldUpRow[] = [
  ...Object.entries(headers).map(([name, text]) => ({
    what: `header fields (core/mime), ${name}`,
    given: 'a header of 1 MiB, for the page of a message',
    prepare: () => viewed(text),
  })),
  {
    what: 'header fields (core/mime), for hooks',
    given: 'a header of 256 KB',
    prepare: () => {
      const bytes = Buffer.from(headers['bytes above ASCII'] ?? '', 'latin1').subarray(0, 256 * kb);
      return () => {
        const header = scanHeader(bytes);
        return header.fields.map((field) => header.value(field));
      };
    },
  },
  {
    what: 'address lists (core/mime)',
    given: 'a field of 256 KB',
    prepare: () => on(addresses(256 * kb), parseAddressList),
  },
  {
    what: 'Message-ID (core/mime)',
    given: '64 KB',
    prepare: () => on(Buffer.from(filled('Message-ID : \r\n x\r\n', 64 * kb)), messageIdOf),
  },
  {
    what: 'MIME structure (core/mime), for summaries',
    given: 'the first 64 KB of a message',
    prepare: () => {
      const parts = filled('--b\r\n\r\n<p>x</p>\r\n', 63 * kb);
      const bytes = Buffer.from(`${head}Content-Type: multipart/mixed; boundary=b\r\n\r\n${parts}`);
      return () => summarise(bytes, mb);
    },
  },
  {
    what: 'transfer encoding (core/mime)',
    given: 'a message of 50 MB, in slices',
    prepare: () => {
      const open = stream(`${head}\r\n${filled(`\xe4 ${words}`, 50 * mb)}`);
      return async () => {
        const plan = await planEncoding(open(), '7bit');
        if (plan.outcome === 'encode') for await (const piece of encodedMessage(open(), plan)) void piece;
      };
    },
  },
  {
    what: 'line ends (core/mime)',
    given: 'a chunk of 64 KB',
    prepare: () => on(Buffer.from(filled('\r\n\n', 64 * kb)), (chunk) => new LineEndings().push(chunk)),
  },
];

const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey;

const mailRows: readonly HoldUpRow[] = [
  {
    what: 'DKIM signing (own)',
    given: 'a header of 256 KB and a body of 50 MB, in slices',
    prepare: () => {
      const open = stream(`${head}To: ${addresses(250 * kb)}\r\n\r\n${filled(` ${words}\r\n`, 50 * mb)}`);
      const input = {
        domain: 'example.org',
        keys: [{ selector: 's', key: rsa }],
        fields: new Set(['from', 'to']),
        now: new Date(0),
      };
      return () => dkimFields(open(), input);
    },
  },
  {
    what: 'signatures of TLS reports, before they are verified (own)',
    given: 'a header of 64 KB',
    prepare: () => {
      const signatures = times(5, () => `DKIM-Signature: ${filled('d=example.org; s=a; ', 8000)}\r\n`);
      return on(Buffer.from(`${head}${signatures}\r\n`), (bytes) => signatureClaims(bytes, bytes.length));
    },
  },
  {
    what: 'DSN composition (own)',
    given: 'a message of 4 MB that is returned',
    prepare: () => {
      const input = {
        reportingMta: 'mail.example.org',
        from: 'postmaster@example.org',
        to: 'a@example.net',
        date: new Date(0),
        messageId: '<a@example.org>',
        boundary: 'b',
        arrival: new Date(0),
        recipients: Array.from({ length: 1000 }, (_, n) => ({
          address: `user${n}@example.net`,
          action: 'failed' as const,
          status: '5.0.0',
          diagnostic: filled('550 5.0.0 no such user here ', 1000),
          host: 'mx.example.net',
          lastAttempt: new Date(0),
        })),
        subject: 'hello',
        originalMessageId: null,
        returned: Buffer.from(`${head}X: \u00e4\r\n\r\n${filled(words, 4 * mb)}`),
        returnedWhole: true,
        smtputf8: true,
      };
      return () => composeDsn(input);
    },
  },
  {
    what: 'rules for replies (re2js)',
    given: 'a reply of 64 KB, of which 2,000 characters are matched',
    prepare: () => {
      const text = filled('no such user here; quota? spam? ', 64 * kb);
      return () => new ReplyClassification().explain(550, '5.1.1', text, 'rcpt');
    },
  },
  {
    what: "an operator's pattern (re2js)",
    given: 'a pattern of 1,000 characters, 2,000 characters of text',
    prepare: () => {
      const pattern = compilePattern(filled('(some|any)?[a-z]+ ', 1000).replace(/\([^)]*$/, ''), { ignoreCase: true });
      return on(filled('some words and any more ', 2000), (text) => pattern.occursIn(text));
    },
  },
  {
    what: 'MTA-STS policies (own)',
    given: 'a policy of 64 KB',
    prepare: () => {
      const servers = times(2500, (n) => `mx: mx${n}.example.net\n`);
      return on(`version: STSv1\nmode: enforce\nmax_age: 86400\n${servers}`, parsePolicy);
    },
  },
];

const form = `<form method="post" action="/x"><input name="a"><textarea name="b"></textarea></form>`;
const packet = encode({
  type: 'response',
  id: 1,
  questions: [{ type: 'TXT', name: 'example.org' }],
  answers: Array.from({ length: 1800 }, (_, n) => ({
    type: 'A' as const,
    name: `n${n}.example.org`,
    ttl: 1,
    data: '192.0.2.1',
  })),
});

const protocolRows: readonly HoldUpRow[] = [
  {
    what: 'text of SMTP DATA (own)',
    given: 'a chunk of 64 KB',
    prepare: () => {
      const limits = { lineEndings: 'normalise', messageBytes: mb, lineBytes: 64 * kb } as const;
      return on(Buffer.from(filled('..\r\n', 64 * kb)), (chunk) => new DataDecoder(limits).write(chunk));
    },
  },
  {
    what: 'SASL (smtp-server)',
    given: 'a line of 12 KB',
    prepare: () => {
      const host = {
        session: {},
        send: () => undefined,
        _server: { logger: { info: () => undefined }, onAuth: () => undefined },
      };
      const mechanism = Reflect.get(sasl, 'SASL_PLAIN') as (this: object, args: string[], done: () => void) => void;
      const line = Buffer.from(filled('a\0', 9000)).toString('base64');
      return () => mechanism.call(host, [line], () => undefined);
    },
  },
  {
    what: 'PROXY headers (own)',
    given: '64 KB',
    prepare: () => on(Buffer.from(filled('PROXY TCP4 1.1.1.1 ', 64 * kb)), parseProxyHeader),
  },
  {
    what: 'DNS answers (dns-packet)',
    given: 'an answer of 64 KB',
    prepare: () => on(packet, (bytes) => decode(bytes)),
  },
  {
    what: 'lines of the log (pino, own)',
    given: 'a value of 64 KB',
    prepare: () => on(JSON.stringify({ msg: filled('\u001b[1m ordinary\u202e words ', 64 * kb) }), sanitizeLine),
  },
  {
    what: 'cases (json5)',
    given: 'a body of 1 MiB, of operators',
    isOfOperator: true,
    prepare: () =>
      on(`[${filled("{a: 'some words', b: 12},", mb - 10).replace(/\{[^}]*$/, '')}]`, (text) =>
        JSON5.parse<unknown>(text),
      ),
  },
  {
    what: 'a refused form (htmlparser2)',
    given: 'a page of 100 KB, fields of 16 KB (sign-in)',
    prepare: () => {
      const fields = { a: filled('<b>"words"&', 8 * kb), b: filled("<i>'words'&", 8 * kb) };
      const details = { type: 'about:blank', title: 'x', status: 422, detail: 'x', invalid: [] };
      const refused = { action: '/x', fields, details, page: '/x' } as unknown as Parameters<typeof refillForm>[1];
      const page = `${form}${filled('<p class="a">some words</p>', 100 * kb)}`;
      return () => refillForm(page, refused);
    },
  },
];

/** What runs on the main thread, without a server around it. */
export const mainThreadRows: readonly HoldUpRow[] = [...mimeRows, ...mailRows, ...protocolRows];
