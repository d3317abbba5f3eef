import { readSync } from 'node:fs';
import { parentPort } from 'node:worker_threads';
import { parseMessage } from './parse-message.js';
import type { ParseReply, ParseTask } from './message-parser.js';

/**
 * The parse thread. It receives a descriptor that the server has opened and checked, or bytes, never a path, and is
 * terminated when it exceeds its time or memory.
 */
function readAll(task: ParseTask): Buffer {
  if ('bytes' in task) return Buffer.from(task.bytes.buffer, task.bytes.byteOffset, task.bytes.length);
  const { fd, size } = task;
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
// Modules are loaded: the time limit starts.
parentPort?.postMessage('ready', []);
