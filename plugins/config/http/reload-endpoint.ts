import { z } from 'zod';
import type { Difference, Reloading, ReloadOutcome } from '../../../core/contracts/server.js';
import { pluralize } from '../../../core/text/format.js';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { isProblem, problem } from '../../../core/problem.js';
import { redactText } from '../../../core/log/redact.js';

const keys = z.array(z.string());
export const DryRun = z.boolean().optional().describe('Only tell what would change.');

export const Differences = z.array(
  z.object({
    key: z.string(),
    before: z.unknown().describe('Null where there was none; a mask for a secret.'),
    after: z.unknown(),
    restart: z.boolean(),
    why: z.string().optional().describe('Of a plugin that waits for a restart: why.'),
  }),
);

export const Failed = z
  .array(z.object({ plugin: z.string(), why: z.string() }))
  .describe('Plugins of the site that failed just as before: no version of them runs.');

const Answer = z.object({
  status: z.enum(['reloaded', 'unchanged', 'dryRun']),
  changed: keys.describe('Keys whose new values are in force, or would be.'),
  restartRequired: keys.describe('Keys that wait for a restart.'),
  differences: Differences,
  failed: Failed,
});

/** Applies changed files. A page shows the changes first and asks for confirmation. */
export function reloadEndpoint(reloading: Reloading): AnyEndpoint {
  return defineEndpoint({
    method: 'POST',
    path: '/config/reload',
    summary: 'Apply the changed configuration files, all or nothing',
    group: 'Configuration',
    access: 'admin',
    query: z.strictObject({ dryRun: DryRun }),
    body: { kind: 'fields', schema: z.strictObject({ dryRun: DryRun }) },
    answer: Answer,
    cache: 'no-store',
    handle: async ({ query, body, request }) => {
      const wanted = query.dryRun === true || body.dryRun === true;
      // An unconfirmed form gets the dry run as its confirmation page.
      const dryRun = wanted || !request.confirmed;
      const action = dryRun ? 'config.reload, dry run' : 'config.reload';
      const outcome = await reloading
        .reload({ by: request.account?.username ?? request.remoteAddress, dryRun })
        .catch((error: unknown) => {
          throw audited(error, action);
        });
      const page = request.representation === 'html';
      return respond<object>({
        model: page ? questionOf(outcome) : outcome,
        audit: {
          action,
          selector: { changed: outcome.changed, restartRequired: outcome.restartRequired },
          counts: { changed: outcome.changed.length, restartRequired: outcome.restartRequired.length },
        },
        ...(page && dryRun ? { view: 'config/reload.njk' } : { location: '/config', notice: reloadSentence(outcome) }),
        status: 200,
      });
    },
  });
}

/** The audit log records the reason of a refusal, as for a reload by signal. */
function audited(error: unknown, action: string): unknown {
  if (!isProblem(error)) return error;
  const audit = { action, selector: { refused: redactText(error.message) } };
  return problem(error.problem, { ...error.details, audit });
}

export function reloadSentence({
  changed,
  restartRequired,
  failed,
}: Pick<ReloadOutcome, 'changed' | 'restartRequired' | 'failed'>): string {
  const broken = failed.map(
    ({ plugin, why }) => `The plugin ${plugin} failed again, and no version of it runs. ${why}`,
  );
  const now = changed.length === 0 ? 'Nothing that can change now has changed.' : `In force: ${few(changed)}.`;
  const later =
    restartRequired.length === 0 ? [] : [`${count(restartRequired)} for a restart: ${few(restartRequired)}.`];
  return [...broken, now, ...later].join(' ');
}

const count = ({ length }: readonly string[]): string => pluralize(length, 'key waits', 'keys wait');

/** A notice is a sentence, not a list. */
function few(all: readonly string[]): string {
  const shown = all.slice(0, 5).join(', ');
  return all.length > 5 ? `${shown} and ${all.length - 5} more` : shown;
}

export function questionOf({ differences }: Pick<ReloadOutcome, 'differences'>): object {
  const rows = (restart: boolean) => differences.filter((one) => one.restart === restart).map(rowOf);
  return { now: rows(false), later: rows(true) };
}

const rowOf = ({ key, before, after, why }: Difference) => ({
  key,
  before: shown(before),
  after: shown(after),
  why: why ?? null,
});

/** A value in the syntax of the file. */
export const shown = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? ''));
