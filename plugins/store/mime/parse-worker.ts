import { readSync } from 'node:fs';
import { answerJobs } from '../../../core/worker-thread.js';
import { parseMessage } from './parse-message.js';
import type { ParseTask } from './message-parser.js';

/** The parse thread receives a descriptor that the server has opened and checked, or bytes, never a path. */
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

answerJobs(
  (task: ParseTask) => parseMessage(readAll(task), task),
  (result) => ('bytes' in result && result.bytes !== null ? [result.bytes.buffer] : []),
);
