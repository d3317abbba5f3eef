import { isIP } from 'node:net';
import { z } from 'zod';
import type { ExplainQuestion, Explaining } from '../../../core/contracts/explaining.js';
import type { PluginsOverview, PluginState } from '../../../core/contracts/plugins-overview.js';
import type { Catalogue, Configuration } from '../../../core/contracts/server.js';
import { type AnyEndpoint, defineEndpoint } from '../../../core/http/endpoint.js';
import { parseAddress } from '../../../core/mime/address.js';
import { isProblem } from '../../../core/problem.js';
import { isHelloName } from '../../../core/smtp/protocol/command.js';
import { phases } from '../../../core/pipeline/hook.js';
import { stages } from '../../../core/pipeline/verdict.js';
import { chainByStage, explanationPage } from './pipeline-page.js';
import { PluginAnswer, pluginRows } from './plugin-list.js';

export interface PipelineDeps {
  readonly catalogue: Catalogue;
  readonly configuration: Pick<Configuration, 'effective'>;
  readonly explaining: Explaining;
  readonly overview: PluginsOverview;
}

const group = 'Service';
const Stage = z.enum(stages);
const Phase = z.enum(phases);

const HookAnswer = z.object({
  stage: Stage,
  phase: Phase,
  plugin: z.string(),
  mode: z.enum(['enforce', 'shadow']).describe('shadow: asked, and its verdict only written to the log'),
  before: z.array(z.string()).describe('Plugins whose hooks it wants to be in front of'),
  after: z.array(z.string()),
  timeLimitMs: z.int(),
  calls: z.int(),
  failures: z.int(),
  shadowed: z.int().describe('Verdicts that were not followed'),
});

const recipients = z
  .union([z.string().max(100_000), z.array(z.string().max(1024)).max(100)])
  .transform((given) => (typeof given === 'string' ? given.split(/[\s,]+/).filter((part) => part !== '') : given))
  .refine((list) => list.length > 0, 'name at least one recipient')
  .refine((list) => list.length <= 100, 'at most 100 recipients')
  .superRefine((list, context) => {
    for (const written of list) checkAddress(written, context);
  });

/** Validated here too, so that all errors of a query are reported at once. */
function checkAddress(written: string, context: z.RefinementCtx): void {
  try {
    parseAddress(written);
  } catch (error) {
    if (!isProblem(error)) throw error;
    context.addIssue({ code: 'custom', message: `"${written}": ${error.details.detail ?? 'is no address'}` });
  }
}

const Question = z.strictObject({
  ip: z
    .string()
    .refine((ip) => isIP(ip) !== 0, 'must be an IP address')
    .describe('Of the client.'),
  ehlo: z
    .string()
    .min(1)
    .max(255)
    .refine(isHelloName, 'must be a domain or an address literal')
    .default('client.example')
    .describe('What it says in EHLO.'),
  mode: z.enum(['mx', 'submission', 'lmtp']).default('mx').describe('Of the listener it comes to.'),
  authenticated: z
    .union([z.literal(''), z.string().max(320)])
    .nullable()
    .default(null)
    .describe('Who has signed in, local@domain; nobody if empty.'),
  tls: z.boolean().default(false),
  mail: z
    .string()
    .max(1024)
    .superRefine((mail, context) => {
      if (mail !== '' && mail !== '<>') checkAddress(mail, context);
    })
    .describe('Reverse-path; empty is the null reverse-path.'),
  rcpt: recipients.describe('Recipients: a list, or a text with blanks or commas between them.'),
});

const Reply = z.object({ code: z.int(), status: z.string().nullable(), text: z.string() }).nullable();
const ExplainedStage = z.object({
  stage: Stage,
  address: z.string().nullable(),
  steps: z.array(
    z.object({
      plugin: z.string(),
      phase: Phase,
      verdict: z.enum(['next', 'accept', 'reject', 'defer', 'discard', 'hold', 'route', 'change', 'notAsked']),
      detail: z.string().nullable(),
      shadow: z.boolean(),
    }),
  ),
  outcome: z.enum(['pass', 'refuse', 'discard']),
  reply: Reply,
});
const ExplanationAnswer = z.object({
  stages: z.array(ExplainedStage),
  recipients: z.array(
    ExplainedStage.extend({
      hop: z.object({ target: z.string(), destination: z.string() }).nullable(),
      way: z.array(z.string()).describe('What the target would do, a sentence each'),
    }),
  ),
  unasked: z.array(z.object({ stage: Stage, plugin: z.string(), phase: Phase })),
});

export function pipelineEndpoints(deps: PipelineDeps): readonly AnyEndpoint[] {
  return [showing(deps), explainingOne(deps)];
}

const showing = ({ catalogue, configuration, overview }: PipelineDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/pipeline',
    summary: 'The mail pipeline: every plugin with its state, every hook in call order',
    group,
    access: 'read',
    answer: z.object({ plugins: z.array(PluginAnswer), hooks: z.array(HookAnswer) }),
    view: 'pipeline.njk',
    cache: 'no-store',
    handle({ request }) {
      const hooks = catalogue.hooks();
      const plugins = overview.plugins();
      if (request.representation !== 'html') return { plugins: withEndpoints(plugins, catalogue), hooks };
      const keys = configuration.effective().map(({ key }) => key);
      return { ...chainByStage(hooks), plugins: pluginRows(plugins, keys) };
    },
  });

/** A replaced plugin has none: its successor owns the names. */
const withEndpoints = (plugins: readonly PluginState[], catalogue: Catalogue) => {
  const owners = catalogue.endpoints().map(({ plugin }) => plugin);
  const countOf = ({ name, state }: PluginState) =>
    state === 'replaced' ? 0 : owners.filter((owner) => owner === name).length;
  return plugins.map((one) => ({ ...one, endpoints: countOf(one) }));
};

const explainingOne = ({ explaining }: PipelineDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/pipeline/explain',
    summary: 'Explain what would happen to a mail, step by step; nothing is sent or stored',
    group,
    access: 'read',
    changes: false,
    body: { kind: 'fields', schema: Question, limit: 256 * 1024 },
    answer: ExplanationAnswer,
    view: 'explanation.njk',
    cache: 'no-store',
    async handle({ body, request }) {
      const question: ExplainQuestion = {
        ...body,
        authenticated: body.authenticated === '' ? null : body.authenticated,
      };
      const explanation = await explaining.explain(question);
      return request.representation === 'html' ? explanationPage(question, explanation) : explanation;
    },
  });
