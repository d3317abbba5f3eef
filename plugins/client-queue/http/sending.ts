import JSON5 from 'json5';
import { z } from 'zod';
import { type RepeatedKey, repeatedKeys, repeatedKeyMessage } from '../../../core/config/positions.js';
import { pluralize } from '../../../core/text/format.js';
import { type AnyEndpoint, defineEndpoint, type EndpointRequest, respond } from '../../../core/http/endpoint.js';
import { problemOf } from '../../../core/http/validation.js';
import { parseAddress } from '../../../core/mime/address.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { TranscriptEntry } from '../../../core/smtp/client/channel.js';
import type { SessionResult } from '../case/case-run.js';
import { at, CaseDefinition, readReversePath, wrongPlaces } from '../case/definition.js';
import { type RawMessageQuery, type OutgoingRequest, requestOfCase, requestOfMessage } from '../case/sending.js';
import type { KeptUpload } from '../case/upload-store.js';
import { outboundGroup, type SendingDeps } from './client-deps.js';

const maxCaseBytes = 1024 * 1024;
const messageTypes = ['message/rfc822', 'application/octet-stream'];
const types = [...messageTypes, 'application/json5', 'multipart/form-data'];

const list = z
  .string()
  .max(100_000)
  .transform((text) =>
    text
      .split(',')
      .map((part) => part.trim())
      .filter((part) => part !== ''),
  );

/** Query parameters of a raw message. */
const RawQuery = z.object({
  mail: z.string().max(1024).optional().describe('Reverse-path of a raw message; <> is the null reverse-path.'),
  rcpt: list.optional().describe('Recipients of a raw message, with commas between.'),
  route: z.string().max(63).optional().describe('Name of a configured route, for a raw message.'),
  protocol: z.enum(['smtp', 'lmtp']).optional(),
  mx: list.optional().describe('Hosts, with commas between, for a raw message; they must be allowed targets.'),
  port: z.int().min(1).max(65_535).optional(),
  filename: z.string().max(255).optional().describe('Name of the raw message, for the log.'),
});
type RawQuery = z.output<typeof RawQuery>;

export function sendingEndpoints(deps: SendingDeps): readonly AnyEndpoint[] {
  return [form(deps), send(deps), queue(deps)];
}

const form = ({ routes }: SendingDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/client/send',
    summary: 'Forms to send or queue a case or a raw message; as JSON the names of the routes and an example',
    group: outboundGroup,
    access: 'operate',
    query: z.object({ mode: z.enum(['now', 'queue']).default('now').describe('What the forms are for.') }),
    answer: z.object({ routes: z.array(z.string()), example: z.string() }),
    view: 'send.njk',
    cache: 'no-store',
    handle: ({ query: { mode }, request }) =>
      request.representation === 'html' ? sendPage(routes(), mode) : { routes: routes(), example: exampleCase },
  });

const send = (deps: SendingDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/client/send',
    problems: ['session-timeout'],
    summary: 'Run an SMTP or LMTP session now: a case, or a raw message',
    group: outboundGroup,
    access: 'operate',
    query: RawQuery,
    body: { kind: 'either', schema: CaseDefinition, limit: maxCaseBytes, types },
    answer: SessionAnswer,
    view: 'result.njk',
    cache: 'no-store',
    idempotent: true,
    handle: ({ body, query, request }) =>
      withRequest(deps, { body, query, request }, async (outgoing) => {
        const result = await deps.sending.send(outgoing, request.signal);
        const audit = { action: 'client.send', selector: { uid: result.uid, outcome: result.outcome } };
        const model = request.representation === 'html' ? resultPage(result) : sessionAnswer(result);
        return respond<object>({ status: 200, model, audit });
      }),
  });

const queue = (deps: SendingDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/client/queue',
    success: [202],
    summary: 'Queue a case or a raw message: durable before the response',
    group: outboundGroup,
    access: 'operate',
    query: RawQuery,
    body: { kind: 'either', schema: CaseDefinition, limit: maxCaseBytes, types },
    answer: z.object({
      status: z.enum(['QUEUED', 'DELIVERED']).describe('DELIVERED: every recipient has a mailbox here'),
      uid: z.string().nullable().describe('Of the first entry'),
      uids: z.array(z.string()),
      queueSize: z.int().describe('Open entries'),
    }),
    cache: 'no-store',
    idempotent: true,
    handle: ({ body, query, request }) =>
      withRequest(deps, { body, query, request }, async (outgoing) => {
        const uids = await deps.intake.queue(outgoing, { address: request.remoteAddress, once: request.once });
        const [uid = null] = uids;
        const status = uid === null ? 'DELIVERED' : 'QUEUED';
        return respond<object>({
          status: 202,
          location: uid !== null && uids.length === 1 ? `/client/queue/${uid}` : '/client/queue/list',
          model: { status, uid, uids, queueSize: deps.queueSize() },
          notice:
            uid === null ? 'Delivered to mailboxes of this server.' : `${pluralize(uids.length, 'message')} queued.`,
          audit: { action: 'client.queue', selector: { uid }, counts: { queued: uids.length } },
        });
      }),
  });

interface Given {
  readonly body: CaseDefinition | undefined;
  readonly query: RawQuery;
  readonly request: EndpointRequest;
}

/** Reads the request in any form and releases the upload after the work. */
async function withRequest<T>(
  deps: SendingDeps,
  given: Given,
  work: (outgoing: OutgoingRequest) => Promise<T>,
): Promise<T> {
  const { body, query, request } = given;
  const caseContext = deps.caseContext();
  if (body !== undefined) return work(requestOfCase(body, caseContext));
  const type = request.contentType ?? '';
  if (type.startsWith('application/json5')) return work(requestOfCase(await caseOf(request), caseContext));
  const written = fieldOf(request, 'case');
  if (written !== undefined && written.trim() !== '' && !request.files.some(({ size }) => size > 0))
    return work(inField('case', request, () => requestOfCase(parseCase(written), caseContext)));
  const upload = await uploadOf(deps, request);
  try {
    return await work(requestOfMessage(messageQuery(query, request), upload));
  } finally {
    await upload.release();
  }
}

/** Attaches an error to its form field. */
function inField<T>(name: string, { representation }: EndpointRequest, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (representation !== 'html' || !isProblem(error)) throw error;
    const { detail = 'It cannot be read.', errors = [{ pointer: '', message: detail }] } = error.details;
    const places = errors.map(({ pointer, message }) => ({ pointer: `/${name}${pointer}`, message }));
    throw problem('invalid', { detail, errors: places });
  }
}

async function caseOf({ stream }: EndpointRequest): Promise<CaseDefinition> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of (stream ?? []) as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxCaseBytes) throw problem('too-large', `A case may have ${maxCaseBytes} bytes at most.`);
    chunks.push(chunk);
  }
  return parseCase(Buffer.concat(chunks).toString());
}

/** @throws Problem `bad-request` for invalid JSON5, `invalid` with every position for an invalid case */
function parseCase(text: string): CaseDefinition {
  const { value, repeated } = parseJson5(text);
  const read = CaseDefinition.safeParse(value);
  if (read.success && repeated.length === 0) return read.data;
  const issues = repeated.map((again) => ({ path: again.path, message: repeatedKeyMessage(again) }));
  throw problemOf([...issues, ...(read.error?.issues ?? [])], 'invalid', 'json');
}

function parseJson5(text: string): { readonly value: unknown; readonly repeated: readonly RepeatedKey[] } {
  try {
    return { value: JSON5.parse(text), repeated: repeatedKeys(text) };
  } catch (error) {
    const why = error instanceof Error ? error.message.replace(/^JSON5: /, '') : 'it cannot be read';
    throw problem('bad-request', { detail: `The case is no JSON5: ${why}.`, cause: error });
  }
}

async function uploadOf({ uploads }: SendingDeps, request: EndpointRequest): Promise<KeptUpload> {
  const files = request.files.filter(({ size }) => size > 0);
  const [file, ...others] = files;
  if (others.length > 0) throw problem('invalid', 'Send one message at a time.');
  const stream = file?.open() ?? request.stream;
  if (stream === undefined) throw problem('invalid', 'There is nothing to send: give a case or a message file.');
  return uploads.keep(stream);
}

/** A form has them in its fields, a script in the query. */
function messageQuery(query: RawQuery, request: EndpointRequest): RawMessageQuery {
  const mail = fieldOf(request, 'mail') ?? query.mail;
  const written = fieldOf(request, 'rcpt');
  const rcpt = written === undefined ? query.rcpt : written.split(/[\s,]+/).filter((part) => part !== '');
  const missing = [mail === undefined ? 'mail' : [], rcpt === undefined || rcpt.length === 0 ? 'rcpt' : []].flat();
  const wrong = wrongPlaces([
    () => at('mail', () => readReversePath(mail ?? '')),
    ...(rcpt ?? []).map((one) => () => at('rcpt', () => parseAddress(one))),
  ]);
  if (missing.length > 0) {
    const absent = missing.map((pointer) => ({ pointer, message: 'is required beside a raw message' }));
    const detail = `${missing.join(' and ')} must be given beside a raw message.`;
    throw problem('invalid', { detail, errors: [...absent, ...wrong] });
  }
  const [first] = wrong;
  if (first !== undefined) throw problem('invalid', { detail: `${first.pointer}: ${first.message}`, errors: wrong });
  const route = fieldOf(request, 'route') ?? query.route;
  const { mx, port, protocol } = query;
  return { mail: mail ?? '', rcpt: rcpt ?? [], mx, port, protocol, route: route === '' ? undefined : route };
}

function fieldOf({ fields }: EndpointRequest, name: string): string | undefined {
  const value = Object.hasOwn(fields, name) ? fields[name] : undefined;
  return typeof value === 'string' ? value : undefined;
}

/** Initial content of the form. */
const exampleCase = `{
  // One session. Without a route, by MX.
  envelopes: [
    {
      mail: 'ann@example.org',
      rcpt: ['bob@example.net'],
      subject: 'Hello {$yymd}',
      text: 'This is message {$uid}.',
    },
  ],
  assertions: { protocol: [['RCPT', '^250']] },
}
`;

/** Replies to queued mail are not checked, so its case has no assertions. */
const queueExample = exampleCase.replace(/\n {2}assertions:.*/, '');

/** One action URL per form: not every browser supports `formaction`. */
const sendPage = (routes: readonly string[], mode: 'now' | 'queue') => ({
  routes,
  example: mode === 'now' ? exampleCase : queueExample,
  action: mode === 'now' ? '/client/send' : '/client/queue',
  label: mode === 'now' ? 'Send now' : 'Queue',
  modes: [
    { title: 'Send now', href: '/client/send', current: mode === 'now' },
    { title: 'Queue', href: '/client/send?mode=queue', current: mode === 'queue' },
  ],
});

/** The result with extra fields for the transcript page. */
function resultPage(result: SessionResult) {
  const { transactions, assertions, envelopes } = result;
  const recipients = envelopes.flatMap((envelope) => envelope.recipients);
  return {
    ...result,
    steps: transactions.map(({ payload, response, error, ms, step }) => ({
      step,
      said: payload,
      answered: response ?? null,
      error: error ?? null,
      tone: error !== undefined ? 'bad' : toneOf(response),
      ms: Math.round(ms),
    })),
    acceptedCount: recipients.filter(({ accepted }) => accepted).length,
    recipientCount: recipients.length,
    failedAssertions: assertions.filter(({ passed }) => !passed).length,
  };
}

const tones: Readonly<Record<string, string>> = { '2': 'good', '3': 'good', '4': 'warn', '5': 'bad' };
const toneOf = (response: string | undefined): string => tones[response?.[0] ?? ''] ?? 'neutral';

const outcome = z.enum(['delivered', 'partial', 'failed']);

const Step = z.object({
  step: z.string(),
  command: z.string(),
  payload: z.string().describe('As it was sent; credentials are masked'),
  response: z.string().nullable(),
  error: z.string().nullable(),
  ms: z.number(),
});

/** A session in responses. */
export const SessionAnswer = z.object({
  uid: z.string(),
  outcome,
  remote: z.object({ host: z.string(), port: z.int(), tls: z.string().nullable() }).nullable(),
  transactions: z.array(Step),
  envelopes: z.array(
    z.object({
      mail: z.string(),
      recipients: z.array(z.object({ address: z.string(), accepted: z.boolean(), response: z.string() })),
      messageId: z.string().nullable(),
      outcome,
      transactions: z.array(Step),
    }),
  ),
  assertions: z.array(
    z.object({ verb: z.string(), expected: z.string(), actual: z.string().nullable(), passed: z.boolean() }),
  ),
});

const stepAnswer = ({ step, command, payload, response, error, ms }: TranscriptEntry) => ({
  step,
  command,
  payload,
  response: response ?? null,
  error: error ?? null,
  ms: Math.round(ms * 10) / 10,
});

export function sessionAnswer(result: SessionResult): z.output<typeof SessionAnswer> {
  const { uid, outcome: end, remote, transactions, envelopes, assertions } = result;
  return {
    uid,
    outcome: end,
    remote,
    transactions: transactions.map(stepAnswer),
    envelopes: envelopes.map((envelope) => ({
      ...envelope,
      recipients: [...envelope.recipients],
      transactions: envelope.transactions.map(stepAnswer),
    })),
    assertions: [...assertions],
  };
}
