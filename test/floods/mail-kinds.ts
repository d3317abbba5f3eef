import type { Flood, Kind } from './flood.js';
import { floodedMailbox, ordinaryMail, reporter, reporterSelector } from './victim.js';

interface MailFlood {
  /** At a time. */
  readonly sessions?: number;
  readonly from?: number;
  readonly to?: string;
  readonly hello?: 'LHLO flood.example';
  /** No more than so many bytes in all, so that the disk does not get full. */
  readonly maxBytes?: number;
  readonly text: (flood: Flood) => string;
}

const mailing = (
  name: string,
  about: string,
  mail: MailFlood,
  portOf = (flood: Flood) => flood.target.mxPort,
): Kind => ({
  name,
  about,
  flood: async (flood) => {
    const { sessions = 45, from = 1, to = floodedMailbox, hello, maxBytes = 500_000_000, text } = mail;
    let bytes = 0;
    await flood.crew(sessions, async (n) => {
      const client = await flood.dialogue(flood.addressOf(n, from), portOf(flood), hello);
      try {
        while (!flood.isOver && bytes < maxBytes) {
          const message = text(flood);
          bytes += message.length;
          await flood.sendMail(client, to, message);
        }
        if (bytes >= maxBytes) await flood.end();
      } finally {
        client.close();
      }
    });
  },
});

const head = 'From: Ann <a@flood.example>\r\nSubject: flood\r\nMIME-Version: 1.0\r\n';
const small = ordinaryMail(1).slice(0, 1500);
const line = `${'All work and no play makes a long message. '.repeat(2)}\r\n`;
const large = `${head}\r\n${line.repeat(10_000_000 / line.length)}`;
const manyFields = `${head}${Array.from({ length: 4900 }, (_, n) => `X-Field-${n}: some words\r\n`).join('')}\r\nbody\r\n`;
const levels = 80;
const deep = `${head}${Array.from({ length: levels }, (_, n) => `Content-Type: multipart/mixed; boundary=level${n}x\r\n\r\n--level${n}x\r\n`).join('')}\r\ndeep\r\n`;
const manyParts = `${head}Content-Type: multipart/mixed; boundary=part\r\n\r\n${'--part\r\n\r\nshort\r\n'.repeat(5000)}--part--\r\n`;

/** Header fields of plain words, addresses and ids, as they are in mail, only long. */
const longFields: Readonly<Record<string, (n: number) => string>> = {
  From: (n) => `Person ${n} <person.${n}@${reporter}>,`,
  To: (n) => `Person ${n} <person.${n}@localhost>,`,
  References: (n) => `<reference.${n}@${reporter}>`,
  'X-Words': () => 'some more plain words of a header field',
};

/** So many bytes in folded lines. */
function longField(name: string, item: (n: number) => string, bytes: number): string {
  const items = Array.from({ length: bytes / (item(100).length + 3) }, (_, n) => item(n));
  return `${name}: ${items.join('\r\n ')}\r\n last@${reporter}`;
}

/** A mail that says that it is a report about TLS (RFC 8460), with a signature that does not fit. */
function reportMail(fields: readonly string[], body: string): string {
  return [
    `DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed; d=${reporter}; s=${reporterSelector};`,
    ` h=from:to:subject:references:x-words; bh=${Buffer.alloc(32, 1).toString('base64')};`,
    ` b=${Buffer.alloc(64, 2).toString('base64')}`,
    `Subject: Report Domain: localhost Submitter: ${reporter} Report-ID: <flood@${reporter}>`,
    ...fields,
    'MIME-Version: 1.0',
    'Content-Type: multipart/report; report-type=tlsrpt; boundary=report',
    '',
    '--report',
    'Content-Type: text/plain',
    '',
    body,
    '--report',
    'Content-Type: application/tlsrpt+json',
    '',
    '{"organization-name":"flood","report-id":"flood","policies":[]}',
    '--report--',
    '',
  ].join('\r\n');
}

const withLongFields = ({ random }: Flood): string => {
  const fields = Object.entries(longFields).map(([name, item]) => longField(name, item, 8000 + random() * 52_000));
  return reportMail(fields, 'A report.');
};
const largeReport = reportMail(
  [`From: tls@${reporter}`, 'To: postmaster@localhost'],
  line.repeat(4_000_000 / line.length),
);

/** Floods of messages. */
export const mailKinds: readonly Kind[] = [
  mailing('mail-small', 'small messages in 45 sessions of one address', { text: () => small }),
  mailing('mail-small-many', 'small messages in 200 sessions of 100 addresses', {
    sessions: 200,
    from: 100,
    text: () => small,
  }),
  mailing('mail-unknown', 'small messages to unknown recipients in 45 sessions of one address', {
    to: 'nobody.here@localhost',
    text: () => small,
  }),
  mailing('mail-large', 'messages of 10 MB in 20 sessions of one address, 600 MB at most', {
    sessions: 20,
    maxBytes: 600_000_000,
    text: () => large,
  }),
  mailing('mail-many-fields', 'messages with 4,900 header fields to postmaster in 45 sessions', {
    to: 'postmaster@localhost',
    text: () => manyFields,
  }),
  mailing('mail-deep', `messages of ${levels} levels to postmaster in 45 sessions`, {
    to: 'postmaster@localhost',
    text: () => deep,
  }),
  mailing('mail-many-parts', 'messages of 5,000 parts to postmaster in 45 sessions', {
    to: 'postmaster@localhost',
    text: () => manyParts,
  }),
  mailing(
    'lmtp-small',
    'small messages by LMTP in 45 sessions of one address',
    { hello: 'LHLO flood.example', text: () => small },
    ({ target }) => target.lmtpPort,
  ),
  mailing(
    'mail-tls-reports',
    'mails that claim to be TLS reports, with four header fields of 8 to 60 KB, of 5 addresses',
    {
      sessions: 5,
      from: 5,
      to: 'postmaster@localhost',
      text: withLongFields,
    },
  ),
  mailing('mail-large-reports', 'mails of 4 MB that claim to be TLS reports, of 5 addresses', {
    sessions: 5,
    from: 5,
    to: 'postmaster@localhost',
    text: () => largeReport,
  }),
];
