import type { ListenerName, Step } from './smtp-fixture.js';

/** One row of the table of hostile commands: what is said on a greeted session, and what must come back. */
export interface Conversation {
  readonly id: string;
  readonly title: string;
  readonly listener?: ListenerName;
  readonly steps: readonly Step[];
}

const base64 = (text: string) => Buffer.from(text).toString('base64');
const long = (length: number) => `NOOP ${'x'.repeat(length - 5)}`;
const from = (parameters: string): string => `MAIL FROM:<a@sender.example>${parameters}`;
const quiet = /^250 /;
const order = /^503 5\.5\.1 /;
const syntax = /^501 5\.5\.4 /;
const unknown = /^500 5\.5\.2 /;
const absent = /^502 5\.5\.1 /;
const denied = /^55[04] 5\.7\.1 /;
const mail: Step = ['MAIL FROM:<a@sender.example>', quiet];
const rcpt: Step = ['RCPT TO:<postmaster@localhost>', quiet];

const foreign = [
  '<b@elsewhere.example>',
  '<b@elsewhere.example.>',
  '<b%elsewhere.example@localhost>',
  '<elsewhere.example!b@localhost>',
  '<@localhost:b@elsewhere.example>',
  '<@localhost,@relay.example:b@elsewhere.example>',
  '<"b@elsewhere.example"@localhost>',
  '<"b%elsewhere.example"@localhost>',
  '<b@localhost@elsewhere.example>',
  '<b@[192.0.2.1]>',
  '<b@[IPv6:2001:db8::1]>',
];
const senders = ['<a@sender.example>', '<postmaster@localhost>', '<>'];

export const conversations: readonly Conversation[] = [
  {
    id: 'S01',
    title: 'a command out of order is 503 and leaves the state as it is',
    steps: [
      ['RCPT TO:<postmaster@localhost>', order],
      ['DATA', order],
      mail,
      ['DATA', order],
      ['MAIL FROM:<c@sender.example>', order],
      rcpt,
      ['MAIL FROM:<c@sender.example>', order],
      ['DATA', /^354 /],
    ],
  },
  {
    id: 'S02',
    title: 'a hello without a single harmless name is 501',
    steps: ['', 'a b', 'x'.repeat(256), 'a\u0007b', '<>();', '<script>alert(1)</script>', "';DROP", '../../etc'].map(
      (name): Step => [`EHLO ${name}`, syntax],
    ),
  },
  {
    id: 'S03',
    title: 'the lesser commands and those of long ago',
    steps: [
      ['RSET', /^250 2\.0\.0 /],
      ['NOOP', quiet],
      ['VRFY postmaster', /^252 2\.5\.2 /],
      ['HELP', /^214/],
      ['EXPN staff', absent],
      ['ETRN sender.example', absent],
      ['TURN', absent],
      ['WIZ', unknown],
      ['DEBUG', unknown],
    ],
  },
  {
    id: 'S04',
    title: 'a line of up to 4096 characters is taken, a longer one is 500',
    steps: [
      [long(512), quiet],
      [long(513), quiet],
      [long(4096), quiet],
      [long(4097), unknown],
      ['NOOP', quiet],
    ],
  },
  {
    id: 'S06',
    title: 'parameters that are unknown are 555, doubled or empty ones 501',
    steps: [
      [from(' HOLDFOR=5'), /^555 5\.5\.4 /],
      [from(' X'), /^555 5\.5\.4 /],
      [from(' SIZE=1 size=1'), syntax],
      [from(' SIZE='), syntax],
      [from(' ='), syntax],
      mail,
      ['RCPT TO:<postmaster@localhost> FUTURE=1', /^555 5\.5\.4 /],
      ['RCPT TO:<postmaster@localhost> X=', syntax],
    ],
  },
  {
    id: 'S07',
    title: 'SIZE over the limit is 552, what is no size 501',
    steps: [
      [from(' SIZE=52428801'), /^552 5\.3\.4 /],
      [from(` SIZE=${'9'.repeat(20)}`), /^552 5\.3\.4 /],
      [from(` SIZE=${'9'.repeat(21)}`), syntax],
      [from(' SIZE=-1'), syntax],
      [from(' SIZE=abc'), syntax],
      [from(' SIZE=1e3'), syntax],
    ],
  },
  {
    id: 'S18',
    title: 'AUTH before TLS is refused',
    listener: 'tls',
    steps: [
      ['AUTH PLAIN', /^538 5\.7\.11 /],
      [`AUTH PLAIN ${base64('\0anna@localhost\0x')}`, /^538 5\.7\.11 /],
      ['AUTH LOGIN', /^538 5\.7\.11 /],
      ['MAIL FROM:<anna@localhost>', /^530 5\.7\.0 /],
    ],
  },
  {
    id: 'S19',
    title: 'AUTH that is given up, malformed or for another identity',
    listener: 'submission',
    steps: [
      ['AUTH PLAIN', /^334 /],
      ['*', /^501 /],
      ['AUTH LOGIN', /^334 /],
      ['*', /^501 /],
      ['AUTH PLAIN !!!', /^501 /],
      [`AUTH PLAIN ${base64('a\0b\0c\0d')}`, /^501 /],
      [`AUTH PLAIN ${base64('boss@localhost\0anna@localhost\0x')}`, /^535 /],
      [`AUTH PLAIN ${'QUJD'.repeat(3072)}`, /^(?:535|500) /],
      ['AUTH CRAM-MD5', /^504 /],
      ['NOOP', quiet],
    ],
  },
  {
    id: 'S32',
    title: 'paths of every kind have the answer of RFC 5321',
    steps: [
      ['MAIL FROM:<>', quiet],
      ['RCPT TO:<>', /^501 /],
      ['RCPT TO:<postmaster>', quiet],
      ['RCPT TO:<Postmaster@LOCALHOST>', quiet],
      ['RCPT TO:<@relay.example:postmaster@localhost>', quiet],
      ['RCPT TO:<"postmaster"@localhost>', quiet],
      ['RCPT TO:<nobody@localhost>', /^550 5\.1\.1 /],
      ['RCPT TO:<x@[127.0.0.1]>', /^55\d 5\./],
      ['RCPT TO:<x@[300.0.0.1]>', /^5\d\d 5\./],
      [`RCPT TO:<${'x'.repeat(65)}@localhost>`, /^550 5\.1\.1 /],
      [`RCPT TO:<${'x'.repeat(253)}@localhost>`, /^553 5\.1\./],
      [`RCPT TO:<x@${'a'.repeat(64)}.example>`, /^55\d 5\.1\./],
      [`RCPT TO:<x@${'a.'.repeat(126)}example>`, /^55\d 5\.1\./],
      ['RCPT TO:<p\u00f6stmaster@localhost>', /^553 5\.6\.7 /],
      ['RCPT TO:<../postmaster@localhost>', /^55\d 5\.1\./],
      ['RCPT TO:<../../etc/passwd@localhost>', /^55\d 5\.1\./],
      ['RCPT TO:<postmaster@..>', /^5\d\d 5\./],
      ['RCPT TO:<postmaster@localhost/../x>', /^5\d\d 5\./],
      ['RCPT TO:<post\0master@localhost>', /^501 5\.5\.4 /],
      ['RCPT TO:<post\u202emaster@localhost>', /^5\d\d 5\./],
      ['RCPT TO:<|/bin/sh@localhost>', /^55\d 5\.1\./],
      ['RSET', quiet],
      [`MAIL FROM:<${'v'.repeat(200)}@sender.example>`, quiet],
      ['RCPT TO:<postmaster@localhost>', quiet],
    ],
  },
  {
    id: 'S32',
    title: 'with SMTPUTF8 a local part may have any letters, and no bidirectional marks',
    steps: [
      ['MAIL FROM:<ä@bücher.example> SMTPUTF8', quiet],
      ['RCPT TO:<ä@localhost>', /^550 5\.1\.1 /],
      ['RCPT TO:<post\u202emaster@localhost>', /^5\d\d 5\./],
      ['RCPT TO:<post\u200bmaster@localhost>', /^5\d\d 5\./],
    ],
  },
  ...senders.map((sender) => ({
    id: 'S33',
    title: `a stranger who sends as ${sender} cannot relay in any form`,
    steps: [
      [`MAIL FROM:${sender}`, quiet] as const,
      ...foreign.map((path): Step => [`RCPT TO:${path}`, /^55[0134] 5\.(?:7\.1|1\.\d) /]),
      ['RCPT TO:<b@elsewhere.example>', denied] as const,
      ['DATA', order] as const,
    ],
  })),
  {
    id: 'S33',
    title: 'submission takes nothing from who has not signed in',
    listener: 'submission',
    steps: senders.map((sender): Step => [`MAIL FROM:${sender}`, /^530 5\.7\.0 /]),
  },
  {
    id: 'S34',
    title: 'nobody may speak for another address',
    steps: [
      ['XCLIENT ADDR=192.0.2.1 LOGIN=anna', /^550 5\.7\.1 /],
      ['XFORWARD ADDR=192.0.2.1', /^550 5\.7\.1 /],
      ['PROXY TCP4 192.0.2.1 192.0.2.2 1 25', unknown],
    ],
  },
];
