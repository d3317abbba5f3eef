import { LineEndings } from '../../../core/mime/line-endings.js';
import type { CaseEnvelope } from './definition.js';
import type { CaseFiles } from './case-file.js';
import type { Variables } from './variables.js';

/** Nothing that a caller hands in is ever taken for a path or a URL. */
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
