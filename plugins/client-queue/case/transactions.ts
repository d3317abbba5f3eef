import { join } from 'node:path';
import { Confinement } from '../../../core/disk/confinement.js';
import { parseAddress } from '../../../core/mime/address.js';
import { scanHeader } from '../../../core/mime/header.js';
import { LineEndings } from '../../../core/mime/line-endings.js';
import { problem } from '../../../core/problem.js';
import type { OutgoingMessage } from '../../../core/smtp/client/message.js';
import {
  type CaseDefinition,
  type CaseEnvelope,
  readReversePath,
  type Variables,
  variablesOf,
  withVariables,
} from './definition.js';

/** One transaction of a session, ready to be sent. */
export interface CaseTransaction {
  /** Null for the null reverse-path. */
  readonly mail: string | null;
  readonly message: OutgoingMessage;
  readonly messageId: string | null;
}

export interface CaseContext {
  readonly files: CaseFiles;
  readonly hostname: string;
  readonly now: () => Date;
}

/** The transactions of a case in order, including repetitions. @throws Problem `invalid` */
export async function* transactionsOf(
  definition: CaseDefinition,
  context: CaseContext,
): AsyncGenerator<CaseTransaction> {
  for (const envelope of definition.envelopes)
    for (let count = 0; count < envelope.repeat; count += 1) yield await transactionOf(envelope, definition, context);
}

async function transactionOf(
  envelope: CaseEnvelope,
  definition: CaseDefinition,
  context: CaseContext,
): Promise<CaseTransaction> {
  const variables = variablesOf(definition, context.now());
  const expanded = withVariables(envelope, variables);
  const { params, rcpt } = expanded;
  const mail = readReversePath(expanded.mail);
  const source = await messageOf(expanded, variables, context);
  const parameters = params.RCPT;
  return {
    mail,
    message: {
      sender: { address: mail, parameters: params.MAIL },
      recipients: rcpt.map((written) => ({ address: parseAddress(written).address, parameters })),
      content: { source },
    },
    messageId: scanHeader(source).first('message-id') ?? null,
  };
}

/** Nothing that a caller sends is treated as a path or URL. */
const closed = { disableFileAccess: true, disableUrlAccess: true, newline: '\r\n' } as const;

/** The message of an envelope, with CRLF line ends. @throws Problem `invalid`, `forbidden`, `too-large` */
export async function messageOf(
  envelope: CaseEnvelope,
  variables: Variables,
  { files, hostname }: { readonly files: CaseFiles; readonly hostname: string },
): Promise<Buffer> {
  if (envelope.file !== undefined) return withLineEnds(await files.read(envelope.file));
  if (envelope.eml !== undefined) return withLineEnds(Buffer.from(envelope.eml));
  return compose(envelope, variables, hostname);
}

async function compose(envelope: CaseEnvelope, variables: Variables, hostname: string): Promise<Buffer> {
  const { mail, rcpt, headers = {}, subject, text, message, html, attachments = [] } = envelope;
  const given = new Set(Object.keys(headers).map((name) => name.toLowerCase()));
  const sender = mail === '' || mail === '<>' ? `mailer-daemon@${hostname}` : mail;
  const { default: MailComposer } = await import('nodemailer/lib/mail-composer');
  const composer = new MailComposer({
    ...closed,
    ...(given.has('from') ? {} : { from: { name: '', address: sender } }),
    ...(given.has('to') ? {} : { to: rcpt.map((address) => ({ name: '', address })) }),
    ...(subject === undefined ? {} : { subject }),
    ...(given.has('date') ? {} : { date: variables.get('date') ?? '' }),
    ...(given.has('message-id') ? {} : { messageId: `<${variables.get('uid') ?? ''}@${hostname}>` }),
    headers: Object.entries(headers).map(([key, value]) => ({ key, value })),
    text: text ?? message ?? (html === undefined ? '' : undefined),
    html,
    attachments: attachments.map(({ filename, contentType, content, encoding }) => ({
      filename,
      contentType,
      content: Buffer.from(content, encoding),
    })),
  });
  return withLineEnds(await composer.compile().build());
}

function withLineEnds(bytes: Buffer): Buffer {
  const lines = new LineEndings();
  return Buffer.concat([lines.push(bytes), lines.end()]);
}

/** Path segments without a leading dot, and only characters that are safe on every system. */
const safeName = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}(\/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}){0,4}$/;

/** Message files that cases may name: regular files below one folder; links are not followed. */
export class CaseFiles {
  readonly #folder: string | undefined;
  readonly #maxBytes: number;

  /** @param folder absolute; undefined: cases may not name files */
  constructor(folder: string | undefined, maxBytes: number) {
    this.#folder = folder;
    this.#maxBytes = maxBytes;
  }

  /** @throws Problem `forbidden` for any other name, without saying why */
  async read(name: string): Promise<Buffer> {
    if (this.#folder === undefined)
      throw problem('forbidden', 'No case folder is configured: give the message as eml.');
    if (!safeName.test(name)) throw refused(name);
    const root = await Confinement.of(this.#folder).catch(() => undefined);
    const handle = await root?.openFile(join(root.root, name));
    if (handle === undefined) throw refused(name);
    try {
      const { size } = await handle.stat();
      if (size > this.#maxBytes) throw problem('too-large', `The file may have ${this.#maxBytes} bytes at most.`);
      // A file that grows meanwhile is cut at its first size.
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(size), 0, size, 0);
      return buffer.subarray(0, bytesRead);
    } finally {
      await handle.close();
    }
  }
}

function refused(name: string) {
  const shown = name.length > 100 ? `${name.slice(0, 100)}…` : name;
  return problem('forbidden', `The case folder has no file that may be read as “${shown}”.`);
}
