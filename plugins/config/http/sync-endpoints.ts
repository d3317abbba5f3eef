import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { Differences, DryRun, Failed, questionOf, reloadSentence } from './reload-endpoint.js';
import type { Sync, SyncOutcome, SyncStatus, SyncSummary } from '../sync/sync.js';

const names = z.array(z.string());
const Skipped = z.array(z.object({ file: z.string(), why: z.string() }));
const Files = z.array(z.object({ file: z.string(), layer: z.string(), sha256: z.string() }));

export const SyncAnswer = z.object({
  state: z
    .enum(['off', 'ok', 'stale', 'error'])
    .describe(
      'stale: what is in force may be old, and it mends itself or waits; error: somebody must mend the source.',
    ),
  source: z.string().nullable().describe('Without passwords and queries.'),
  lastAttempt: z.iso.datetime().nullable(),
  lastSuccess: z.iso.datetime().nullable().describe('When the source was last read and found good.'),
  error: z.string().nullable(),
});

const Status = SyncAnswer.extend({
  layers: names.describe('The lowest first.'),
  apply: z.enum(['automatic', 'manual']).nullable(),
  intervalSeconds: z.int().nullable(),
  appliedAt: z.iso.datetime().nullable(),
  applied: Files.describe('What is in force, the lowest layer first.'),
  skipped: Skipped.describe('Files of the source that do not count, and why.'),
  drift: z
    .object({
      source: names.describe('Files that the source has otherwise than what is applied.'),
      disk: names.describe('Applied files that were edited or removed in the data folder.'),
      running: z.object({
        changed: names.describe('Keys that a reload would change.'),
        restartRequired: names,
        error: z.string().nullable().describe('Why the files on disk would be refused now.'),
      }),
    })
    .nullable(),
  servers: z
    .array(
      z.object({
        server: z.string(),
        version: z.string().nullable().describe('What it has applied last.'),
        state: z.enum(['waiting', 'applying', 'checking', 'applied', 'refused', 'failed', 'stopped', 'none']),
        why: z.string().nullable(),
      }),
    )
    .describe('Those that have the same source, where that knows them: nodes of a cluster.'),
});

const Outcome = z.object({
  status: z.enum(['applied', 'unchanged', 'dryRun']),
  source: z.string(),
  files: Files,
  skipped: Skipped,
  changed: names.describe('Keys whose new values are in force, or would be.'),
  restartRequired: names,
  differences: Differences,
  failed: Failed,
});

export function syncEndpoints(sync: Sync): readonly AnyEndpoint[] {
  return [
    defineEndpoint({
      method: 'GET',
      path: '/config/sync/status',
      summary: 'Source of pulled configuration files, and its state',
      group: 'Configuration',
      access: 'admin',
      query: z.strictObject({}),
      answer: Status,
      view: 'sync.njk',
      cache: 'no-store',
      page: (model: SyncStatus) => ({ ...model, ...syncText(model), inStep: isInStep(model) }),
      handle: () => sync.status(),
    }),
    defineEndpoint({
      method: 'POST',
      path: '/config/sync',
      summary: 'Pull the configuration files now and apply them, all or nothing',
      group: 'Configuration',
      access: 'admin',
      query: z.strictObject({ dryRun: DryRun }),
      body: { kind: 'fields', schema: z.strictObject({ dryRun: DryRun }) },
      answer: Outcome,
      cache: 'no-store',
      handle: async ({ query, body, request }) => {
        // An unconfirmed form gets the dry run as its confirmation page.
        const dryRun = query.dryRun === true || body.dryRun === true || !request.confirmed;
        const outcome = await sync.pull({ by: request.account?.username ?? request.remoteAddress, dryRun });
        const page = request.representation === 'html';
        return respond<object>({
          model: page ? { ...questionOf(outcome), ...outcome } : outcome,
          audit: auditOf(outcome),
          ...(page && dryRun
            ? { view: 'config/sync-question.njk' }
            : { location: '/config/sync/status', notice: noticeOf(outcome) }),
          status: 200,
        });
      },
    }),
  ];
}

const auditOf = ({ status, source, files, changed, restartRequired }: SyncOutcome) => ({
  action: status === 'dryRun' ? 'config.sync, dry run' : 'config.sync',
  selector: { source, files: files.map(({ file }) => file), changed, restartRequired },
  counts: { files: files.length, changed: changed.length, restartRequired: restartRequired.length },
});

function noticeOf(outcome: SyncOutcome): string {
  return outcome.status === 'unchanged' ? 'The source has nothing new.' : reloadSentence(outcome);
}

/** Text for the page and for the card on the configuration page. */
export function syncText({ state, lastAttempt, error }: SyncSummary): {
  readonly tone: string;
  readonly sentence: string;
} {
  const tone = { off: 'neutral', ok: 'good', stale: 'warn', error: 'bad' }[state];
  if (lastAttempt === null && state !== 'off') return { tone, sentence: 'The source has not been looked at yet.' };
  if (state === 'stale' && error === null)
    return { tone, sentence: 'The source has something else than what is in force.' };
  const sentences = {
    off: 'No source is configured: this server has its own file and nothing else.',
    ok: 'What the source has is in force.',
    stale: 'What is in force stays, and may be old. The source is looked at again.',
    error: 'What is in force stays. Somebody must mend the source.',
  };
  return { tone, sentence: sentences[state] };
}

function isInStep({ drift }: SyncStatus): boolean {
  if (drift === null) return true;
  const { source, disk, running } = drift;
  const differing = [source, disk, running.changed, running.restartRequired];
  return running.error === null && differing.every(({ length }) => length === 0);
}
