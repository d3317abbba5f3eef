import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { test } from 'node:test';
import { parseAddress } from '../../../core/mime/address.js';
import { PipelineExplaining } from '../../../core/pipeline/explain.js';
import { PipelineDelivery } from '../../../core/pipeline/submission.js';
import type { Pipeline } from '../../../core/pipeline/pipeline.js';
import { next } from '../../../core/pipeline/verdict.js';
import { HandClock } from '../../support/hand-clock.js';
import { decideAt, hook, pipelineOf, transactionOf } from './pipeline-fixture.js';

const clock = new HandClock();
const explaining = (pipeline: Pipeline) => new PipelineExplaining({ pipeline, clock, listenerName: (mode) => mode });
const question = { ip: '192.0.2.1', ehlo: 'x.example', mode: 'mx', authenticated: null, tls: false, mail: '' } as const;

const asking: Readonly<Record<string, (pipeline: Pipeline) => Promise<unknown>>> = {
  'a command whose hooks take their time': async (pipeline) => decideAt(pipeline, 'rcptTo'),
  'a mail that is explained': (pipeline) => explaining(pipeline).explain({ ...question, rcpt: ['bob@example.org'] }),
  'a recipient that is routed anew': (pipeline) =>
    new PipelineDelivery({ pipeline, clock, spool: undefined as never }).route(
      transactionOf(['bob@one']),
      parseAddress('bob@one'),
    ),
};

for (const [title, ask] of Object.entries(asking)) {
  test(`${title} is waited for: who has left the pipeline may yet be asked`, async () => {
    const { pipeline } = pipelineOf();
    let answer = (): void => undefined;
    const undo = hook(pipeline, 'rcptTo', () => new Promise((resolve) => (answer = () => resolve(next()))), {
      order: 'route',
    });
    const asked = ask(pipeline);
    await turn();
    undo();
    let settled = false;
    const settling = pipeline.settled().then(() => (settled = true));
    await turn();
    assert.equal(settled, false);
    answer();
    await asked;
    await settling;
  });
}
