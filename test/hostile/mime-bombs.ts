import { lines } from '../support/delivery.js';

const nested = (depth: number): string =>
  Array.from({ length: depth }, (_, n) => `Content-Type: multipart/mixed; boundary=b${n}\r\n\r\n--b${n}\r\n`).join('');

const head = 'From: a@sender.example\r\nSubject: bomb\r\nMIME-Version: 1.0\r\n';
const mixed = (boundary: string, body: string): string =>
  `${head}Content-Type: multipart/mixed; boundary="${boundary}"\r\n\r\n${body}`;
const wrapped = (text: string): string => text.replace(/.{1,76}/g, '$&\r\n');

/** Messages that were made to break whoever parses them; each is taken and stored as it is. */
export const mimeBombs: Readonly<Record<string, () => string>> = {
  '100 levels': () => `${head}${nested(100)}\r\ndeep\r\n`,
  '1,000 levels': () => `${head}${nested(1000)}\r\ndeep\r\n`,
  '10,000 levels': () => `${head}${nested(10_000)}\r\ndeep\r\n`,
  '20,000 parts': () => mixed('b', '--b\r\n\r\nx\r\n'.repeat(20_000)),
  '2,000 messages in each other': () => `${head}${'Content-Type: message/rfc822\r\n\r\n'.repeat(2000)}end\r\n`,
  'a boundary of 70 characters': () => mixed('b'.repeat(70), `--${'b'.repeat(70)}\r\n\r\nx\r\n`),
  'a boundary of 2,048 characters': () => mixed('b'.repeat(2048), `--${'b'.repeat(2048)}\r\n\r\nx\r\n`),
  'no end of its parts': () => mixed('b', '--b\r\nContent-Type: text/plain\r\n\r\nx\r\n'),
  'the same boundary within itself': () =>
    mixed('b', '--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nx\r\n--b--\r\n--b--\r\n'),
  '20,000 pieces of a file name': () =>
    `${head}Content-Disposition: attachment;\r\n${Array.from({ length: 20_000 }, (_, n) => ` filename*${n}=x;\r\n`).join('')} x=y\r\n\r\nx\r\n`,
  'a charset and an encoding that nobody has': () =>
    lines(`${head}Content-Type: text/plain; charset=x-none`, 'Content-Transfer-Encoding: rot13', '', 'Hi'),
  '10 MB of base64 junk': () => `${head}Content-Transfer-Encoding: base64\r\n\r\n${wrapped('=*A-'.repeat(2_500_000))}`,
  '1 MB of nested elements': () => `${head}Content-Type: text/html\r\n\r\n${wrapped('<div>'.repeat(200_000))}`,
  '4 MB of flowed text': () => `${head}Content-Type: text/plain; format=flowed\r\n\r\n${'> > a \r\n'.repeat(500_000)}`,
};

const fields = (count: number) => Array.from({ length: count }, (_, n) => `X-${n}: y\r\n`).join('');

/** Odd headers that are stored as they are. */
export const oddHeaders: Readonly<Record<string, string>> = {
  '1,001 fields': `${fields(1001)}\r\nbody\r\n`,
  'a line without a colon': 'no colon here\r\nSubject: x\r\n\r\nbody\r\n',
  'names of object members': '__proto__: x\r\nconstructor: y\r\ntoString: z\r\nhasOwnProperty: q\r\n\r\nbody\r\n',
  'bytes of no charset': 'Subject: \u00fc\u00ff\u0080\r\nFrom: \u00e4 <a@sender.example>\r\n\r\nbody\r\n',
  'a field of 10,000 lines': `Subject: x\r\n${' y\r\n'.repeat(10_000)}\r\nbody\r\n`,
  nothing: '',
  'only header fields': 'Subject: x\r\nX: y\r\n',
  'only an empty line': '\r\n',
};

/** Headers that are refused as too large. */
export const hugeHeaders: Readonly<Record<string, string>> = {
  '200,000 fields': `${'X: y\r\n'.repeat(200_000)}\r\nbody\r\n`,
  'a field of 100,000 lines': `Subject: x\r\n${' folded again\r\n'.repeat(100_000)}\r\nbody\r\n`,
};
