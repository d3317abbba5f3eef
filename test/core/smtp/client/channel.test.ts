import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { systemClock } from '../../../../core/clock.js';
import { type Answer, Channel, Transcript } from '../../../../core/smtp/client/channel.js';
import { isClientFailure, timeoutFailure } from '../../../../core/smtp/client/failure.js';

const shown = (answer: Answer): string => (isClientFailure(answer) ? answer.text : `${answer.code}`);

/** A channel whose input the test emits, as a socket does in one turn of the event loop. */
function open() {
  const socket = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
  const transcript = new Transcript();
  const channel = new Channel(socket as Socket, systemClock, transcript);
  const hear = (text: string): boolean => socket.emit('data', Buffer.from(text));
  return { socket, channel, transcript, hear };
}

test('a reply and the end of the connection in one turn: the reply counts, and comes first', async () => {
  const { socket, channel, hear } = open();
  const answer = channel.ask('final', '.', 1000);
  hear('250 taken\r\n');
  socket.emit('end');
  socket.emit('close');
  assert.match(channel.failure?.text ?? '', /closed/);
  assert.equal(shown(await answer), '250');
});

test('a channel that is closed after the last reply tells of no failure', async () => {
  const { socket, channel, transcript, hear } = open();
  const answer = channel.ask('quit', 'QUIT', 1000);
  hear('221 bye\r\n');
  socket.emit('end');
  await answer;
  channel.close();
  await pause(10);
  assert.deepEqual(
    transcript.entries.map(({ command }) => command),
    ['QUIT'],
  );
});

test('what came before a command in the same turn does not answer it', async () => {
  const { channel, hear } = open();
  hear('250 taken\r\n');
  assert.match(shown(await channel.ask('mail', 'MAIL FROM:<>', 1000)), /without being asked/);
  const other = open();
  other.hear('250 taken\r\n');
  assert.equal(other.channel.write('MAIL FROM:<>\r\n'), false);
});

test('a reply that has come is no timeout, though nothing had read it when its time was over', async () => {
  const { channel, hear } = open();
  const answer = channel.ask('mail', 'MAIL FROM:<>', 20);
  const began = performance.now();
  setImmediate(() => {
    hear('250 well\r\n');
    while (performance.now() - began < 40);
  });
  assert.equal(shown(await answer), '250');
  // The timer of a deadline keeps no process alive.
  const [next] = await Promise.all([channel.ask('rcpt', 'RCPT TO:<a@example.com>', 20), pause(60)]);
  assert.match(shown(next), /did not answer in time/);
});

test('replies beyond 64 KB are read at once', async () => {
  const { channel, hear } = open();
  const answers = Array.from({ length: 3000 }, () => channel.expect('rcpt', 1000));
  let settled = 0;
  for (const answer of answers) void answer.then(() => (settled += 1));
  for (let count = 0; count < 3000; count += 1) hear(`250 ${'x'.repeat(30)}\r\n`);
  await Promise.resolve();
  await Promise.resolve();
  assert.ok(settled > 1500, `${settled}`);
  await Promise.all(answers);
});

test('a reply that has come counts when the channel is closed or given up before it is read', async () => {
  for (const end of [
    (channel: Channel) => channel.close(),
    (channel: Channel) => channel.fail(timeoutFailure(channel.step)),
  ]) {
    const { channel, hear } = open();
    const answer = channel.ask('final', '.', 1000);
    hear('250 taken\r\n');
    end(channel);
    assert.equal(shown(await answer), '250');
  }
});

test('a connection that says something unasked in this turn has failed, and takes no chunk', () => {
  const { channel, hear } = open();
  hear('250 taken\r\n');
  assert.equal(channel.heardWithin(1000), false);
  assert.match(channel.failure?.text ?? '', /without being asked/);
});

test('a refusal right behind the 354 is a refusal of the text', async () => {
  const { channel, hear } = open();
  const go = channel.ask('data', 'DATA', 1000);
  hear('354 go\r\n');
  hear('552 5.3.4 too large\r\n');
  assert.equal(shown(await go), '354');
  channel.perform('body', 1000);
  assert.equal(channel.write('text\r\n'), false);
  assert.equal(channel.failure?.kind, 'reply');
  assert.equal(channel.failure?.reply?.code, 552);
});

test('what follows a 421 or a malformed reply answers nothing, though it came in the same turn', async () => {
  for (const [first, expected] of [
    ['421 4.3.2 going down\r\n', /421|going down/],
    ['no reply at all\r\n', /no reply/],
  ] as const) {
    const { channel, hear } = open();
    const answers = [channel.expect('mail', 1000), channel.expect('rcpt', 1000)];
    hear(first);
    hear('250 well\r\n');
    hear('250 well\r\n');
    for (const answer of await Promise.all(answers)) {
      assert.ok(isClientFailure(answer));
      assert.match(`${answer.text} ${answer.reply?.lines.join(' ') ?? ''}`, expected);
    }
  }
});
