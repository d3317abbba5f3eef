import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { CommandFlag } from '../../../core/cli/command.js';
import { systemClock } from '../../../core/clock.js';
import type { OwnerCall } from '../../../core/contracts/server.js';
import { ClientQueueOptions } from '../../../plugins/client-queue/options.js';
import { queueCommand } from '../../../plugins/client-queue/queue-command.js';

const counts = { recipients: 0, messages: 0, otherRecipients: 0, active: 0, notFound: 0, error: null };
const running = { id: 'j1', state: 'running', total: 5000, done: 0, ...counts };

/** A server whose job is in one state after the other, each time it is asked. */
function serverWith(states: readonly object[]) {
  const calls: string[] = [];
  const left = [...states];
  const call: OwnerCall = (method, path, body) => {
    calls.push(`${method} ${path}${body === undefined ? '' : ` ${JSON.stringify(body)}`}`);
    if (path.endsWith('/cancel')) return Promise.resolve({ status: 200, body: {} });
    if (method === 'POST') return Promise.resolve({ status: 202, body: { job: running } });
    return Promise.resolve({ status: 200, body: { ...running, ...left.shift() } });
  };
  return { call, calls };
}

async function queue(owner: OwnerCall, words: string, flags: readonly CommandFlag[] = []): Promise<string> {
  const printed: string[] = [];
  const noQuestion = () => assert.fail('it asks');
  await queueCommand.run({
    args: words.split(' '),
    flags: new Set(flags),
    values: {},
    options: ClientQueueOptions.parse({}),
    configuration: { data: '/nowhere', domains: ['localhost'], hostname: 'mx1' },
    terminal: { interactive: false, print: (text) => void printed.push(text), ask: noQuestion, askSecret: noQuestion },
    clock: systemClock,
    owner,
  });
  return printed.join('\n');
}

describe('postern queue with a filter', () => {
  test('starts a job, waits for its end, and says what it has changed', async () => {
    const end = {
      state: 'done',
      done: 5000,
      recipients: 4998,
      messages: 4997,
      otherRecipients: 3,
      active: 1,
      notFound: 2,
    };
    const { call, calls } = serverWith([{ done: 2000 }, end]);
    assert.equal(
      await queue(call, 'hold domain=dead.example state=deferred'),
      `4,998 recipients in 4,997 messages held.
3 other recipients of the same messages stay as they are.
1 entry being sent now: the change applies after this attempt.
2 entries not there any more, or in no state for it.`,
    );
    assert.deepEqual(calls, [
      'POST /client/queue/hold {"filter":"domain=dead.example&state=deferred","job":true}',
      'GET /client/queue/jobs/j1',
      'GET /client/queue/jobs/j1',
    ]);
    const json = JSON.parse(await queue(serverWith([end]).call, 'hold all=true', ['json'])) as object;
    assert.deepEqual(json, { operation: 'hold', dryRun: false, total: 5000, error: null, ...end, results: [] });
  });

  test('cancels the job at Ctrl-C, and exits with 1', async () => {
    const server = serverWith([{ done: 100 }, { state: 'cancelled', done: 600, recipients: 600, messages: 600 }]);
    const interrupting: OwnerCall = (method, path, body) => {
      if (server.calls.length === 1) process.emit('SIGINT');
      return server.call(method, path, body);
    };
    const run = queue(interrupting, 'delete all=true');
    await assert.rejects(run, { message: 'The job is cancelled: 600 of 5,000 entries done.' });
    assert.deepEqual(server.calls.slice(1), [
      'GET /client/queue/jobs/j1',
      'POST /client/queue/jobs/j1/cancel',
      'GET /client/queue/jobs/j1',
    ]);
  });

  test('exits with 1 when the job fails', async () => {
    const { call } = serverWith([{ state: 'failed', error: 'The disk is full.' }]);
    await assert.rejects(queue(call, 'release all=true'), { message: 'The job is failed: The disk is full.' });
  });
});
