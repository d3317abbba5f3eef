import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { basicOf, type Flood, type FloodConnection, type Kind } from './flood.js';
import { floodedMailbox, ordinaryMail } from './victim.js';

const host = 'Host: 127.0.0.1\r\n';
const health = `GET /health HTTP/1.1\r\n${host}\r\n`;
const inOnePiece = 500;
const statusLine = 'HTTP/1.1 ';

const asReader = `Authorization: ${basicOf('read')}\r\n`;
const docs = `GET /docs HTTP/1.1\r\n${host}${asReader}\r\n`;

/** Clients with an HTTP connection each, which is opened anew when it is closed. */
const connecting =
  (clients: number, from: number, use: (connection: FloodConnection, flood: Flood) => Promise<unknown>) =>
  (flood: Flood): Promise<void> =>
    flood.crew(clients, async (n) => {
      const connection = await flood.open(flood.target.httpPort, flood.addressOf(n, from));
      await use(connection, flood);
      connection.close();
    });

const pipelined = (clients: number, from: number): Kind => ({
  name: `http-pipelined-${clients}${from === 1 ? '' : '-many'}`,
  about: `GET /health pipelined on ${clients} connections of ${from === 1 ? 'one address' : `${from} addresses`}`,
  flood: connecting(clients, from, (connection) =>
    connection.countAnswers(statusLine).pump(health.repeat(inOnePiece), 'requests', inOnePiece),
  ),
});

/** Header fields that come so slowly that the request is never whole. */
const dripped = (addresses: number, each: number): Kind => ({
  name: `http-dripped-fields-${addresses}`,
  about: `header fields dripped on ${each} connections of each of ${addresses} addresses`,
  flood: connecting(addresses * each, addresses, async (connection) => {
    await connection.send(`GET / HTTP/1.1\r\n${host}`);
    await connection.drip('X-Word: word\r\n', 1000);
  }),
});

/** Begins a TLS handshake of a client that never says more: the head of a record, and a part of its hello. */
const partOfHello = Buffer.from('1603010200010001fc0303', 'hex');

/** Bodies that are shorter, longer or otherwise than their header says. */
const oddBodies = [
  'Content-Length: 10\r\n\r\nusername=a&password=b&more=yes',
  'Content-Length: 5\r\nContent-Length: 7\r\n\r\nhello',
  'Content-Length: -1\r\n\r\n',
  'Content-Length: 99999999999999999999\r\n\r\nx',
  `Transfer-Encoding: chunked\r\n\r\n5;${'extension=x;'.repeat(300)}\r\nhello\r\n0\r\n\r\n`,
  'Transfer-Encoding: chunked\r\n\r\nZZ\r\nhello\r\n0\r\n\r\n',
  'Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\nx\r\n0\r\n\r\n',
  `Transfer-Encoding: chunked\r\n\r\n${'1\r\nx\r\n'.repeat(4000)}0\r\n\r\n`,
];

/** Floods of HTTP in which the connection is what matters. */
export const connectionKinds: readonly Kind[] = [
  pipelined(5, 1),
  pipelined(20, 1),
  pipelined(95, 1),
  pipelined(200, 100),
  {
    name: 'http-docs-unread',
    about: 'role read pipelines /docs on 20 connections and never reads an answer',
    flood: connecting(20, 1, async (connection) => {
      await connection.stopReading().pump(docs.repeat(100), 'requests', 100);
    }),
  },
  {
    name: 'http-docs-gone',
    about: 'role read pipelines 500 times /docs and is gone, on 20 connections at a time',
    flood: connecting(20, 1, async (connection, flood) => {
      await connection.send(docs.repeat(500));
      flood.count('requests', 500);
      await pause(50);
      connection.reset();
    }),
  },
  {
    name: 'http-pipelined-gone',
    about: 'GET /health 5,000 times on a connection that is closed at once, 90 at a time',
    flood: connecting(90, 1, async (connection, flood) => {
      await connection.send(health.repeat(5000));
      flood.count('requests', 5000);
    }),
  },
  dripped(10, 100),
  dripped(254, 4),
  {
    name: 'http-slow-bodies',
    about: 'forms of strangers whose body comes a byte at a time, on 90 connections of each of 5 addresses',
    flood: connecting(450, 5, async (connection) => {
      const type = 'Content-Type: application/x-www-form-urlencoded\r\n';
      await connection.send(`POST /sign-in HTTP/1.1\r\n${host}${type}Content-Length: 10000\r\n\r\n`);
      await connection.drip('a', 500);
    }),
  },
  {
    name: 'http-slow-readers',
    about: 'role read asks for /docs on 90 connections and reads 1 KB a second',
    flood: connecting(90, 1, async (connection) => {
      await connection.readSlowly(1024, 1000).send(docs.repeat(20));
      await connection.closed();
    }),
  },
  {
    name: 'http-silent',
    about: 'connections that say nothing, 95 of each of 10 addresses',
    flood: connecting(950, 10, (connection) => connection.closed()),
  },
  {
    name: 'https-half-hellos',
    about: 'TLS handshakes that stop in the middle of the hello, 95 of each of 10 addresses',
    flood: (flood) =>
      flood.crew(950, async (n) => {
        const connection = await flood.open(flood.target.httpsPort, flood.addressOf(n, 10));
        await connection.send(partOfHello);
        await connection.closed();
        connection.close();
      }),
  },
  {
    name: 'https-handshakes',
    about: 'TLS handshakes that are completed and left, 40 at a time of each of 4 addresses',
    flood: (flood) =>
      flood.crew(160, async (n) => {
        const place = { host: '127.0.0.1', port: flood.target.httpsPort, localAddress: flood.addressOf(n, 4) };
        const socket = connectTls({ ...place, rejectUnauthorized: false });
        try {
          await once(socket, 'secureConnect');
          flood.count('handshakes');
        } finally {
          socket.on('error', () => undefined).destroy();
        }
      }),
  },
  {
    name: 'http-event-streams',
    about: 'role admin follows the log on 90 streams of events, while 5 sessions send mail that is logged',
    flood: (flood) =>
      flood.crew(95, async (n) => {
        if (n < 90) {
          const connection = await flood.open(flood.target.httpPort, flood.addressOf(0));
          const as = `Authorization: ${basicOf('admin')}\r\n`;
          await connection.send(`GET /logs/stream HTTP/1.1\r\n${host}${as}Accept: text/event-stream\r\n\r\n`);
          await connection.countAnswers('\ndata:').closed();
          connection.close();
        } else {
          const client = await flood.dialogue(flood.addressOf(0));
          while (!flood.isOver) await flood.sendMail(client, floodedMailbox, ordinaryMail(n));
        }
      }),
  },
  {
    name: 'http-stopped-uploads',
    about: 'role operate uploads messages of 4 MB that stop in the middle, 90 at a time',
    flood: connecting(90, 1, async (connection, flood) => {
      const type = `Authorization: ${basicOf('operate')}\r\nContent-Type: message/rfc822\r\n`;
      const path = '/store/localhost/bruno/folders/INBOX/messages';
      await connection.send(
        `POST ${path} HTTP/1.1\r\n${host}${type}Content-Length: 4000000\r\n\r\nSubject: half\r\n\r\n`,
      );
      for (let part = 0; part < 20; part += 1) await connection.send('x'.repeat(99_998) + '\r\n');
      flood.count('half uploads');
      await pause(200);
      connection.reset();
    }),
  },
  {
    name: 'http-odd-bodies',
    about: 'bodies of wrong length, chunks of one byte, chunk extensions, on 90 connections',
    flood: connecting(90, 1, async (connection, flood) => {
      const odd = oddBodies[Math.floor(flood.random() * oddBodies.length)] ?? '';
      const type = 'Content-Type: application/x-www-form-urlencoded\r\n';
      flood.count('requests');
      await Promise.race([
        connection.receive(/^HTTP/, `POST /sign-in HTTP/1.1\r\n${host}${type}${odd}`).catch(() => undefined),
        pause(1000),
      ]);
    }),
  },
];
