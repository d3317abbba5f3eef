import { Readable } from 'node:stream';
import { z } from 'zod';
import type { Quarantined, QueueQuarantine } from '../../../core/contracts/relay-queue-store.js';
import { pluralize } from '../../../core/text/format.js';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { ask } from '../../../core/http/response.js';
import { parseAddressList } from '../../../core/mime/address-list.js';
import { decodeWords } from '../../../core/mime/encoded-words.js';
import { scanHeader } from '../../../core/mime/header.js';
import { problem } from '../../../core/problem.js';
import { requestOfMessage } from '../case/sending.js';
import { isoTime } from './entry-answer.js';
import { outboundGroup, type QueueDeps, type SendingDeps } from './client-deps.js';

const maxListed = 1000;
const listPath = '/client/queue/quarantine';
const path = `${listPath}/{name}`;

const Params = z.object({
  name: z
    .string()
    .min(1)
    .max(255)
    .regex(/^[^/\0]+$/),
});

const Item = z.object({
  name: z.string(),
  uid: z.string().optional().describe('Of the entry that it was, if its name tells'),
  reason: z.string(),
  bytes: z.int(),
  size: z.int().describe('The same as bytes'),
  at: z.string(),
});

type Deps = QueueDeps & Pick<SendingDeps, 'intake' | 'uploads' | 'routes' | 'queueSize'>;

/** Quarantined messages can be viewed, requeued and removed. */
export function quarantineEndpoints(deps: Deps): readonly AnyEndpoint[] {
  return [listing(deps), recovering(deps), reading(deps), downloading(deps), queueing(deps), discarding(deps)];
}

const listing = ({ queue }: Deps) =>
  defineEndpoint({
    method: 'GET',
    path: listPath,
    summary: 'Damaged and unknown files that were found in the queue and quarantined',
    group: outboundGroup,
    access: 'read',
    answer: z.object({
      items: z.array(Item),
      total: z.int(),
      limit: z.int(),
      nextCursor: z.string().nullable(),
      prevCursor: z.string().nullable(),
    }),
    view: 'quarantine.njk',
    cache: 'no-store',
    async handle() {
      const found = (await queue.quarantine?.list()) ?? [];
      const items = found.slice(0, maxListed).map(itemOf);
      return { items, total: found.length, limit: maxListed, nextCursor: null, prevCursor: null };
    },
  });

const flag = z.union([z.boolean(), z.enum(['true', 'false']).transform((text) => text === 'true')]);

const recovering = ({ queue }: Deps) =>
  defineEndpoint({
    method: 'POST',
    path: '/client/queue/recover',
    summary: 'Recreate entries from quarantined messages whose envelope is known; removes nothing',
    group: outboundGroup,
    access: 'admin',
    body: {
      kind: 'fields',
      schema: z.strictObject({
        names: z
          .union([z.string().max(255), z.array(z.string().max(255)).max(1000)])
          .transform((given) => [given].flat())
          .optional()
          .describe('As GET /client/queue/quarantine lists them; all when absent.'),
        dryRun: flag.default(false).describe('Only say what would be done.'),
      }),
    },
    answer: z.object({
      recovered: z.int().describe('How many are entries again, or would be'),
      uids: z.array(z.string()),
      left: z.array(z.object({ name: z.string(), reason: z.string() })).describe('What stays in quarantine, and why'),
    }),
    cache: 'no-store',
    async handle({ body: { names, dryRun } }) {
      const { recovered, uids, left } = await quarantineOf(queue).recover({ names, dryRun });
      const model = { recovered, uids: [...uids], left: [...left] };
      const messages = pluralize(recovered, 'message');
      const rest = left.length === 0 ? '' : ` ${pluralize(left.length, 'file')} left in quarantine.`;
      return respond({
        status: 200,
        model,
        location: listPath,
        notice: `${dryRun ? `${messages} can be queued again.` : `${messages} queued again.`}${rest}`,
        ...(!dryRun && { audit: { action: 'quarantine.recover', selector: { names: names ?? 'all', uids } } }),
      });
    },
  });

const reading = ({ queue, routes }: Deps) =>
  defineEndpoint({
    method: 'GET',
    path,
    summary: 'One quarantined file; for a message, its sender, recipients and subject',
    group: outboundGroup,
    access: 'operate',
    params: Params,
    answer: Item.extend({
      message: z
        .object({
          sender: z.string().describe('Of Return-Path; empty for the null reverse-path'),
          recipients: z.array(z.string()).describe('Who may have been meant: the envelope is lost'),
          subject: z.string(),
        })
        .nullable(),
    }),
    view: 'quarantined.njk',
    cache: 'no-store',
    async handle({ params: { name }, request }) {
      const item = itemOf(await quarantinedOf(name, queue));
      const found = await readQuarantined(await quarantineOf(queue).read(name));
      const answer = { ...item, message: found === undefined ? null : { ...found, recipients: [...found.recipients] } };
      const page = { ...answer, path: pathOf(name), routes: routes() };
      return request.representation === 'html' ? page : answer;
    },
  });

const downloading = ({ queue }: Deps) =>
  defineEndpoint({
    method: 'GET',
    path: `${path}/content`,
    summary: 'The bytes of a quarantined file',
    group: outboundGroup,
    access: 'operate',
    params: Params,
    produces: ['bytes'],
    cache: 'no-store',
    async handle({ params: { name } }) {
      const source = await quarantineOf(queue).read(name);
      return respond({
        stream: { source, contentType: 'application/octet-stream' },
        headers: { 'Content-Disposition': `attachment; filename="${name.replaceAll(/[^\w.-]/g, '_')}"` },
        audit: { action: 'quarantine.read', selector: { name } },
      });
    },
  });

const recipients = z
  .union([z.string().max(100_000), z.array(z.string().max(1024)).max(1000)])
  .transform((given) => [given].flat().flatMap((text) => text.split(/[\s,]+/).filter((part) => part !== '')));

const queueing = (deps: Deps) =>
  defineEndpoint({
    method: 'POST',
    path: `${path}/queue`,
    success: [202],
    summary: 'Queue a quarantined message again, for these recipients; it leaves the quarantine',
    group: outboundGroup,
    access: 'operate',
    params: Params,
    body: {
      kind: 'fields',
      schema: z.strictObject({
        mail: z.string().max(1024).optional().describe('Reverse-path; that of its Return-Path if absent.'),
        rcpt: recipients.describe('Who gets it: its envelope is lost.'),
        route: z.string().max(63).optional(),
      }),
    },
    answer: z.object({ uids: z.array(z.string()), queueSize: z.int() }),
    cache: 'no-store',
    idempotent: true,
    async handle({ params: { name }, body: { mail, rcpt, route }, request }) {
      const { queue, intake, uploads } = deps;
      await quarantinedOf(name, queue);
      const sender = mail ?? (await readQuarantined(await quarantineOf(queue).read(name)))?.sender;
      if (sender === undefined) throw problem('invalid', 'It says nothing of its sender: give mail, <> for none.');
      if (rcpt.length === 0) throw problem('invalid', 'rcpt: say who gets it; its envelope is lost.');
      const upload = await uploads.keep(Readable.from(withoutReturnPath(await quarantineOf(queue).read(name))));
      try {
        const outgoing = requestOfMessage({ mail: sender, rcpt, route: route === '' ? undefined : route }, upload);
        const uids = await intake.queue(outgoing, { address: request.remoteAddress, once: request.once });
        await quarantineOf(queue).discard(name);
        const [uid] = uids;
        return respond<object>({
          status: 202,
          model: { uids, queueSize: deps.queueSize() },
          location: uid === undefined ? listPath : `/client/queue/${uid}`,
          notice: uid === undefined ? 'Delivered to mailboxes of this server.' : 'It is in the queue again.',
          audit: { action: 'quarantine.queue', selector: { name, uids, rcpt } },
        });
      } finally {
        await upload.release();
      }
    },
  });

const discarding = ({ queue }: Deps) =>
  defineEndpoint({
    method: 'DELETE',
    path,
    summary: 'Remove a quarantined file permanently',
    group: outboundGroup,
    access: 'operate',
    params: Params,
    answer: z.object({ removed: z.string() }),
    cache: 'no-store',
    async handle({ params: { name }, request }) {
      const { size, reason } = await quarantinedOf(name, queue);
      if (!request.confirmed) {
        return ask(request, {
          question: `Remove ${name} (${pluralize(size, 'byte')}) permanently? Reason of the quarantine: ${reason}`,
          fields: { _method: 'DELETE' },
          label: 'Remove it',
          back: pathOf(name),
        });
      }
      await quarantineOf(queue).discard(name);
      return respond({
        status: 200,
        model: { removed: name },
        location: listPath,
        notice: `${name} is removed.`,
        audit: { action: 'quarantine.remove', selector: { name, size, reason } },
      });
    },
  });

function quarantineOf({ quarantine }: Deps['queue']): QueueQuarantine {
  if (quarantine === undefined) throw problem('not-found', 'This queue has no quarantine.');
  return quarantine;
}

async function quarantinedOf(name: string, queue: Deps['queue']): Promise<Quarantined> {
  const found = (await quarantineOf(queue).list()).find((one) => one.name === name);
  if (found === undefined) throw problem('not-found', 'There is no such thing in the quarantine of the queue.');
  return found;
}

const itemOf = ({ at, ...rest }: Quarantined): z.output<typeof Item> => ({
  ...rest,
  bytes: rest.size,
  at: isoTime(at),
});
const pathOf = (name: string): string => `${listPath}/${encodeURIComponent(name)}`;

/** Facts from a quarantined message whose envelope is lost. */
interface QuarantinedMessage {
  /** From its Return-Path field; empty for the null reverse-path. */
  readonly sender: string;
  /** Likely recipients, best first: those in its Received fields, else those in its header. */
  readonly recipients: readonly string[];
  readonly subject: string;
}

const headBytes = 64 * 1024;
const maxRecipients = 100;
const maxSubject = 200;
const returnPath = /^Return-Path: <([^<>\r\n]*)>\r\n/;

/** Undefined when it does not begin like a message of the queue. */
async function readQuarantined(source: Readable): Promise<QuarantinedMessage | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of source as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size >= headBytes) break;
  }
  const head = Buffer.concat(chunks).subarray(0, headBytes);
  const [, sender] = returnPath.exec(head.toString('latin1', 0, 1100)) ?? [];
  return sender === undefined ? undefined : { sender, ...described(head) };
}

function described(head: Buffer): Pick<QuarantinedMessage, 'recipients' | 'subject'> {
  const header = scanHeader(head);
  const [, receivedFor] = /\bfor\s+<([^<>\s]+)>/.exec(header.first('received') ?? '') ?? [];
  const named = ['to', 'cc'].flatMap((name) => header.all(name)).flatMap((field) => parseAddressList(field));
  const addresses = receivedFor === undefined ? named.map(({ address }) => address) : [receivedFor];
  return {
    recipients: [...new Set(addresses)].filter((address) => address.includes('@')).slice(0, maxRecipients),
    subject: decodeWords(header.first('subject') ?? '').slice(0, maxSubject),
  };
}

/** The message as sent: without a leading Return-Path field. */
async function* withoutReturnPath(source: Readable): AsyncGenerator<Buffer> {
  let start = Buffer.alloc(0);
  let isBehind = false;
  for await (const chunk of source as AsyncIterable<Buffer>) {
    if (isBehind) {
      yield chunk;
      continue;
    }
    start = Buffer.concat([start, chunk]);
    const end = start.indexOf('\r\n');
    if (end < 0 && start.length < headBytes) continue;
    isBehind = true;
    const [field] = returnPath.exec(start.toString('latin1', 0, end + 2)) ?? [];
    yield field === undefined ? start : start.subarray(field.length);
  }
  if (!isBehind && start.length > 0) yield start;
}
