import { readSync } from 'node:fs';
import { parentPort } from 'node:worker_threads';
import { parseMessage } from './parse-message.js';
import type { ParseReply, ParseTask } from './message-parser.js';

/**
 * The thread that parses. It is given a descriptor that the server has opened and checked, never a path, and is ended from
 * outside when it takes too long or too much.
 */
function readAll({ fd, size }: ParseTask): Buffer {
  const bytes = Buffer.allocUnsafeSlow(size);
  let length = 0;
  while (length < size) {
    const read = readSync(fd, bytes, length, size - length, length);
    if (read === 0) break;
    length += read;
  }
  return bytes.subarray(0, length);
}

async function answer(task: ParseTask): Promise<void> {
  let reply: ParseReply;
  try {
    reply = { ok: true, result: await parseMessage(readAll(task), task) };
  } catch (error) {
    reply = { ok: false, error: error instanceof Error ? error.message : String(error) };
  }
  const bytes = reply.ok && 'bytes' in reply.result ? reply.result.bytes : null;
  parentPort?.postMessage(reply, bytes === null ? [] : [bytes.buffer]);
}

parentPort?.on('message', (task: ParseTask) => void answer(task));
// Modules are loaded: from now on the time counts.
parentPort?.postMessage('ready', []);
