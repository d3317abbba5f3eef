import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { suite, test, type TestContext } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import type { Submission } from '../../../core/contracts/submission.js';
import { openSpool } from '../../../core/spool/file-spool.js';
import { parseAddress } from '../../../core/mime/address.js';
import { isProblem, type Problem } from '../../../core/problem.js';
import type { SmtpSettings } from '../../../core/smtp/server/listeners.js';
import { PipelineSubmission } from '../../../core/pipeline/submission.js';
import { accept, defer, discard, next, reject, route } from '../../../core/pipeline/verdict.js';
import { rememberingLog } from '../spool/remembering-log.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { FakeTarget, type FakeTargetOptions } from './fake-target.js';
import { pipelineOf } from './pipeline-fixture.js';

const message = 'Subject: handed in\r\n\r\ntext\r\n';
const content = () => Readable.from([Buffer.from(message)]);
const from: Submission = {
  username: 'ann@example.org',
  remoteAddress: '192.0.2.7',
  via: 'HTTP',
  reversePath: parseAddress('ann@example.org'),
  recipients: [parseAddress('bob@one'), parseAddress('cy@two')],
  content,
};

async function opened(
  t: TestContext,
  options: FakeTargetOptions = {},
  longLines: () => SmtpSettings['longLines'] = () => 'encode',
) {
  const folder = await temporaryFolder(t);
  const { log } = rememberingLog();
  const spool = await openSpool(folder, { log, reserveBytes: 0 });
  const { pipeline } = pipelineOf();
  const steps: string[] = [];
  const targets = [new FakeTarget('one', steps, options), new FakeTarget('two', steps)] as const;
  for (const target of targets) pipeline.deliverTo(target.name, target.name, target);
  pipeline.on('site', 'rcptTo', { order: 'route' }, ({ address }) =>
    ['one', 'two'].includes(address.domain) ? route({ target: address.domain, destination: address.address }) : next(),
  );
  const submission = new PipelineSubmission({
    pipeline,
    spool,
    hostname: 'mx.example',
    clock: systemClock,
    log,
    longLines,
  });
  const spooled = async () => {
    const entries = await readdir(folder, { recursive: true, withFileTypes: true });
    return entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
  };
  return { pipeline, submission, targets, steps, spooled };
}

async function refusal(promise: Promise<unknown>): Promise<Problem> {
  const error: unknown = await promise.then(
    () => new Error('it was taken'),
    (reason: unknown) => reason,
  );
  if (!isProblem(error)) throw error;
  return error;
}

suite('mail that is handed in from inside', () => {
  test('is delivered by the targets that its recipients are routed to, for any submitter', async (t) => {
    const { submission, targets, spooled } = await opened(t);
    const { id, recipients } = await submission.submit(from);
    assert.deepEqual(
      recipients.map(({ address, target }) => [address.address, target]),
      [
        ['bob@one', 'one'],
        ['cy@two', 'two'],
      ],
    );
    assert.deepEqual(
      targets.map(({ holds }) => holds),
      [['bob@one'], ['cy@two']],
    );
    const { transaction } = targets[0];
    assert.equal(transaction?.id, id);
    assert.equal(transaction.session.user?.username, 'ann@example.org');
    assert.equal(transaction.session.remote.address, '192.0.2.7');
    assert.equal(transaction.repeatable, undefined);
    assert.deepEqual(await spooled(), [], 'the spool lets go of it');
  });

  test('has its long lines encoded or refused, when a user hands it in', async (t) => {
    const text = `Subject: s\r\n\r\n${'word '.repeat(300)}\r\n`;
    const long = { ...from, content: () => Readable.from([Buffer.from(text)]) };
    const delivered = async (made: Awaited<ReturnType<typeof opened>>, submission: Submission) => {
      await made.submission.submit(submission);
      return made.targets[0].texts[0] ?? '';
    };
    assert.match(await delivered(await opened(t), long), /Content-Transfer-Encoding: quoted-printable\r\n\r\nword/);
    assert.equal(await delivered(await opened(t), { ...long, username: undefined }), text);
    assert.equal(await delivered(await opened(t, {}, () => 'pass'), long), text);
    const refusing = await opened(t, {}, () => 'refuse');
    assert.match((await refusal(refusing.submission.submit(long))).message, /has a line that is too long/);
    const header = { ...from, content: () => Readable.from([Buffer.from(`X: ${'x'.repeat(999)}\r\n\r\n`)]) };
    assert.match((await refusal(refusing.submission.submit(header))).message, /line that is too long/);
    const encoding = await opened(t);
    assert.match((await refusal(encoding.submission.submit(header))).message, /cannot be encoded: its header/);
    assert.deepEqual([...(await refusing.spooled()), ...(await encoding.spooled())], []);
  });

  test('carries an id that its caller gives, and may be handed in under it again', async (t) => {
    const { submission, targets } = await opened(t);
    assert.equal((await submission.submit({ ...from, id: 'draft-1' })).id, 'draft-1');
    assert.equal(targets[0].transaction?.repeatable, true);
  });

  test('each refused recipient is named, no one gets it, and the content is not read', async (t) => {
    const { submission, steps } = await opened(t);
    const recipients = ['bob@one', 'eve@nowhere', 'mal@nowhere'].map((text) => parseAddress(text));
    const unread = () => {
      throw new Error('it was read');
    };
    const { problem, details } = await refusal(submission.submit({ ...from, recipients, content: unread }));
    assert.equal(problem, 'invalid');
    assert.deepEqual(
      details.errors?.map(({ pointer }) => pointer),
      ['eve@nowhere', 'mal@nowhere'],
    );
    assert.match(details.detail ?? '', /^Nothing was sent, because of these recipients: eve@nowhere \(/);
    assert.deepEqual(steps, []);
  });

  test('is unavailable when all refusals are temporary, and invalid as soon as one is permanent', async (t) => {
    const { submission, pipeline } = await opened(t);
    pipeline.on('full', 'rcptTo', { order: 'policy' }, ({ address }) =>
      address.domain === 'full' ? defer(452, '4.2.2', 'Mailbox full') : next(),
    );
    const refused = async (...texts: readonly string[]) =>
      (await refusal(submission.submit({ ...from, recipients: texts.map((text) => parseAddress(text)) }))).problem;
    assert.equal(await refused('a@full', 'b@full'), 'unavailable');
    assert.equal(await refused('a@full', 'b@nowhere'), 'invalid');
  });

  test('hooks decide about its sender and see its text', async (t) => {
    const { submission, pipeline, steps, spooled } = await opened(t);
    const seen: string[] = [];
    pipeline.on('site', 'message', {}, async (input) => {
      for await (const chunk of input.message.open()) seen.push(String(chunk));
      return seen.join('').includes('forbidden') ? reject(554, '5.7.1', 'Not this') : accept();
    });
    await submission.submit(from);
    assert.match(seen.join(''), /Subject: handed in\r\n\r\ntext\r\n$/);
    const forbidden = () => Readable.from([Buffer.from('Subject: x\r\n\r\nforbidden\r\n')]);
    const refused = await refusal(submission.submit({ ...from, content: forbidden }));
    assert.deepEqual(
      [refused.problem, refused.message],
      ['invalid', 'The message is refused: Not this. Nothing was sent.'],
    );
    pipeline.on('sender', 'mailFrom', {}, () => reject(550, '5.7.1', 'Not you.'));
    const before = steps.length;
    assert.match(
      (await refusal(submission.submit(from))).message,
      /^The sender is refused: Not you\. Nothing was sent\.$/,
    );
    assert.equal(steps.length, before);
    assert.deepEqual(await spooled(), []);
  });

  test('a recipient that a hook discards is no refusal', async (t) => {
    const { submission, pipeline, targets } = await opened(t);
    pipeline.on('quiet', 'rcptTo', { order: 'policy' }, ({ address }) =>
      address.domain === 'two' ? discard('not wanted') : next(),
    );
    const { recipients } = await submission.submit(from);
    assert.deepEqual(
      recipients.map(({ target }) => target),
      ['one', 'none'],
    );
    assert.deepEqual(targets[1].holds, []);
  });

  test('when a target fails, no recipient has it, and the problem is unavailable without a cause', async (t) => {
    const fails = { step: 'commit', error: new Error('ENOSPC /srv/secret') } as const;
    const { submission, targets, spooled } = await opened(t, { fails });
    const { problem, message: sentence } = await refusal(submission.submit(from));
    assert.equal(problem, 'unavailable');
    assert.doesNotMatch(sentence, /srv|ENOSPC/);
    assert.deepEqual(
      targets.map(({ holds }) => holds),
      [[], []],
    );
    assert.deepEqual(await spooled(), []);
  });

  test('content that breaks off leaves no file', async (t) => {
    const { submission, steps, spooled } = await opened(t);
    async function* broken() {
      yield Buffer.from('Subject: x\r\n');
      await Promise.resolve();
      throw new Error('the draft is gone');
    }
    await assert.rejects(submission.submit({ ...from, content: broken }));
    assert.deepEqual(steps, []);
    assert.deepEqual(await spooled(), []);
  });
});
