import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { before, describe, test } from 'node:test';
import { atEnd, suiteEnding } from '../support/ending.js';
import { SmtpClient } from '../support/smtp-client.js';
import { until } from '../support/until.js';
import { nonEndings, smuggledTo } from './smuggling.js';
import { header, SmtpFixture } from './smtp-fixture.js';

const suite = suiteEnding();

/** What a server took: each envelope with its text. */
interface Taken {
  readonly sender: string;
  readonly recipients: string[];
  readonly lines: string[];
}

/** A session of a server to which CR, LF and CRLF are all the same, and a dot between any two of them the end. */
class NaiveSession {
  readonly #socket: Socket;
  readonly #take: (taken: Taken) => void;
  #buffered = '';
  #current: Taken = { sender: '', recipients: [], lines: [] };
  #inText = false;

  constructor(socket: Socket, take: (taken: Taken) => void) {
    this.#socket = socket;
    this.#take = take;
    socket.on('error', () => undefined);
    socket.on('data', (chunk) => this.#hear(chunk.toString('latin1')));
    this.#say('220 naive.example');
  }

  #hear(text: string): void {
    // A CR at the end may be half of a CRLF.
    const lines = `${this.#buffered}${text}`.split(/\r\n|\n|\r(?!\n|$)/);
    this.#buffered = lines.pop() ?? '';
    for (const line of lines)
      if (this.#inText) this.#hearText(line);
      else this.#obey(line);
  }

  #hearText(line: string): void {
    if (line !== '.') {
      this.#current.lines.push(line.startsWith('.') ? line.slice(1) : line);
      return;
    }
    this.#inText = false;
    this.#take(this.#current);
    this.#say('250 2.0.0 taken');
  }

  #obey(line: string): void {
    const [, sender] = /^MAIL FROM:<([^>]*)>/i.exec(line) ?? [];
    const [, recipient] = /^RCPT TO:<([^>]*)>/i.exec(line) ?? [];
    if (sender !== undefined) this.#current = { sender, recipients: [], lines: [] };
    if (recipient !== undefined) this.#current.recipients.push(recipient);
    this.#inText = /^DATA$/i.test(line);
    this.#say(this.#inText ? '354 go on' : '250 2.0.0 yes');
  }

  #say(text: string): void {
    this.#socket.write(`${text}\r\n`);
  }
}

describe('what goes on to a server that takes any line end', () => {
  let fixture: SmtpFixture;
  let port: number;
  const all: Taken[] = [];
  before(async () => {
    const listener = createServer((socket) => void new NaiveSession(socket, (taken) => void all.push(taken)));
    listener.listen(0, '127.0.0.1');
    await once(listener, 'listening');
    atEnd(suite, () => void listener.close());
    port = (listener.address() as AddressInfo).port;
    const routes = { naive: { mx: ['127.0.0.1'], port, tls: 'never' } };
    const rules = [{ rcpt: '.*@inline\\.example', hosts: ['127.0.0.1'], port, tls: 'never' }];
    const plugins = { 'client-queue': { routes, defaultRoute: 'naive' }, proxy: { rules } };
    fixture = await SmtpFixture.start(suite, { relayNetworks: ['127.0.0.0/8'] }, { plugins });
  });

  test('what is looked for would be found', async () => {
    for (const ending of Object.values(nonEndings).filter((text) => !/\0|\r\r/.test(text))) {
      const before = all.length;
      const client = await SmtpClient.greeted({ port });
      await client.pipeline(['MAIL FROM:<a@sender.example>', 'RCPT TO:<x@far.example>', 'DATA']);
      client.write(`${header}first${ending}${smuggledTo('x@far.example')}\r\n.\r\n`);
      await client.readReplies(5);
      assert.equal(all.splice(before).length, 2, JSON.stringify(ending));
      client.close();
    }
  });

  for (const domain of ['inline.example', 'queued.example']) {
    for (const [name, ending] of Object.entries({ ...nonEndings, 'CRLF.CRLF, stuffed': '\r\n..\r\n' })) {
      test(`S14 ${name} smuggles no second message to ${domain}`, async () => {
        const recipient = `x@${domain}`;
        const before = all.length;
        const client = await fixture.atData(recipient);
        const { code } = await fixture.send(client, `${header}first${ending}${smuggledTo(recipient)}\r\n.\r\n`);
        client.close();
        assert.equal(code, /\0/.test(ending) ? 554 : 250);
        if (code === 250) await until('a message', () => (all.length > before ? true : undefined));
        const [taken, ...more] = all.slice(before);
        assert.deepEqual(more, []);
        assert.equal(taken?.sender, code === 250 ? 'a@sender.example' : undefined);
        if (taken === undefined) return;
        assert.deepEqual(taken.recipients, [recipient]);
        assert.equal(taken.lines.at(-1), 'evil', 'what follows is text');
      });
    }
  }

  for (const domain of ['inline.example', 'queued.example']) {
    for (const [name, ending] of Object.entries({ ...nonEndings, 'CRLF.CRLF': '\r\n.\r\n' })) {
      test(`S36 ${name} in a chunk of BDAT smuggles no second message to ${domain}`, async () => {
        const recipient = `x@${domain}`;
        const before = all.length;
        const client = await fixture.greeted();
        await client.pipeline(['MAIL FROM:<a@sender.example>', `RCPT TO:<${recipient}>`]);
        const text = `${header}first${ending}${smuggledTo(recipient)}`;
        const { code } = await fixture.send(client, `BDAT ${text.length} LAST\r\n${text}`);
        client.close();
        assert.equal(code, /\0/.test(ending) ? 554 : 250);
        if (code === 250) await until('a message', () => (all.length > before ? true : undefined));
        const [taken, ...more] = all.slice(before);
        assert.deepEqual(more, []);
        assert.equal(taken?.sender, code === 250 ? 'a@sender.example' : undefined);
        if (taken === undefined) return;
        assert.deepEqual(taken.recipients, [recipient]);
        const lines = text.split(/\r\n|\r|\n/);
        assert.deepEqual(taken.lines.slice(-lines.length), lines, 'all of it is text');
      });
    }
  }

  test('S14 nothing but those messages has gone out', () => {
    assert.ok(all.length >= 2 * 10);
    assert.ok(all.every(({ sender }) => sender === 'a@sender.example'));
  });
});
