import { setTimeout as pause } from 'node:timers/promises';
import type { Flood, FloodConnection, Kind } from './flood.js';
import { floodedMailbox } from './victim.js';

const sessions = 45;
const inOnePiece = 500;
const lineEnd = '\n';
const opened = 'MAIL FROM:<a@flood.example>\r\nRCPT TO:<postmaster@localhost>\r\n';

/** 45 sessions of one address that have said EHLO; each is opened anew when it is closed. */
const inSessions =
  (use: (connection: FloodConnection, flood: Flood) => Promise<unknown>) =>
  (flood: Flood): Promise<void> =>
    flood.crew(sessions, async () => {
      const connection = await flood.openSession(flood.addressOf(0));
      await use(connection.countAnswers(lineEnd), flood);
      connection.close();
    });

const pipelined = (name: string, what: string, lines: string, number: number, first = ''): Kind => ({
  name: `smtp-${name}`,
  about: `${what} pipelined in ${sessions} sessions of one address`,
  flood: inSessions(async (connection) => {
    await connection.send(first);
    await connection.pump(lines, 'commands', number);
  }),
});

/** Sessions of a submission listener that try a password each and then the next. */
const guessing = (clients: number, from: number): Kind => ({
  name: `smtp-guessing${from === 1 ? '' : '-many'}`,
  about: `passwords guessed by AUTH in ${clients} sessions of ${from === 1 ? 'one address' : `${from} addresses`}`,
  flood: (flood) =>
    flood.crew(clients, async (n) => {
      const client = await flood.dialogue(flood.addressOf(n, from), flood.target.submissionPort);
      for (let tries = 0; tries < 4; tries += 1) {
        const token = Buffer.from(`\0name${Math.floor(flood.random() * 1e6)}@localhost\0a guess`).toString('base64');
        const { code } = await client.command(`AUTH PLAIN ${token}`);
        flood.count(`answers ${code}`);
      }
      client.close();
    }),
});

/** Floods of SMTP without messages. */
export const smtpKinds: readonly Kind[] = [
  pipelined(
    'recipients',
    'MAIL, 900 RCPT and RSET',
    `MAIL FROM:<a@flood.example>\r\n${`RCPT TO:<${floodedMailbox}>\r\n`.repeat(900)}RSET\r\n`,
    902,
  ),
  pipelined('bdat', 'BDAT of one octet', 'BDAT 1\r\nx'.repeat(inOnePiece), inOnePiece, opened),
  pipelined('noop', 'NOOP', 'NOOP\r\n'.repeat(inOnePiece), inOnePiece),
  pipelined('vrfy', 'VRFY', `VRFY ${floodedMailbox}\r\n`.repeat(inOnePiece), inOnePiece),
  pipelined('rset', 'MAIL and RSET', 'MAIL FROM:<a@flood.example>\r\nRSET\r\n'.repeat(inOnePiece), 2 * inOnePiece),
  pipelined('ehlo', 'EHLO', 'EHLO flood.example\r\n'.repeat(inOnePiece), inOnePiece),
  pipelined('errors', 'unknown commands', 'JUNK\r\n'.repeat(inOnePiece), inOnePiece),
  {
    name: 'smtp-connections',
    about: 'connections opened and closed at once, 40 at a time of each of 10 addresses',
    flood: (flood) =>
      flood.crew(400, async (n) => {
        const connection = await flood.open(flood.target.mxPort, flood.addressOf(n, 10));
        if (n % 2 === 0) await connection.receive(/^220 /m);
        connection.close();
      }),
  },
  {
    name: 'smtp-silent',
    about: 'connections that say nothing, 45 of each of 80 addresses',
    flood: (flood) =>
      flood.crew(80 * 45, async (n) => {
        const connection = await flood.open(flood.target.mxPort, flood.addressOf(n, 80));
        await connection.closed();
        connection.close();
      }),
  },
  {
    name: 'smtp-tls-half',
    about: 'STARTTLS without a handshake, 45 of each of 10 addresses',
    flood: (flood) =>
      flood.crew(450, async (n) => {
        const connection = await flood.openSession(flood.addressOf(n, 10));
        await connection.receive(/^220 /m, 'STARTTLS\r\n');
        await connection.closed();
        connection.close();
      }),
  },
  {
    name: 'smtp-tls-handshakes',
    about: 'STARTTLS with a handshake, then gone, 40 at a time of each of 4 addresses',
    flood: (flood) =>
      flood.crew(160, async (n) => {
        const client = await flood.dialogue(flood.addressOf(n, 4));
        await client.command('STARTTLS');
        await client.startTls();
        flood.count('handshakes');
        client.close();
      }),
  },
  guessing(sessions, 1),
  guessing(254, 254),
  {
    name: 'smtp-dripped-commands',
    about: 'command lines that come a byte at a time, 45 of each of 20 addresses',
    flood: (flood) =>
      flood.crew(900, async (n) => {
        const connection = await flood.openSession(flood.addressOf(n, 20));
        await connection.drip('N', 250);
      }),
  },
  {
    name: 'smtp-dripped-data',
    about: 'text of messages that comes a line at a time, 45 of each of 20 addresses',
    flood: (flood) =>
      flood.crew(900, async (n) => {
        const connection = await flood.openSession(flood.addressOf(n, 20));
        await connection.receive(/^354 /m, `${opened}DATA\r\n`);
        await connection.drip('a line\r\n', 250);
      }),
  },
  {
    name: 'smtp-unread',
    about: `NOOP pipelined in ${sessions} sessions of one address that never read a reply`,
    flood: inSessions(async (connection) => {
      await connection.stopReading().pump('NOOP\r\n'.repeat(inOnePiece), 'commands', inOnePiece);
    }),
  },
  {
    name: 'smtp-gone',
    about: 'MAIL and 900 RCPT, then a reset of the connection, 45 at a time of one address',
    flood: inSessions(async (connection, flood) => {
      await connection.send(`MAIL FROM:<a@flood.example>\r\n${`RCPT TO:<${floodedMailbox}>\r\n`.repeat(900)}`);
      flood.count('commands', 901);
      await pause(20);
      connection.reset();
    }),
  },
];
