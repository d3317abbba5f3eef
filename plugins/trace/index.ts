import { configuration } from '../../core/contracts/server.js';
import { type Traces, traces } from '../../core/contracts/traces.js';
import { watchFolder } from '../../core/host/unknown-entries.js';
import type { Outcome, WatchedEvents } from '../../core/pipeline/events.js';
import type { Recipient, SmtpSession } from '../../core/pipeline/transaction.js';
import { definePlugin, type PluginContext } from '../../core/plugin.js';
import { traceEndpoints } from './http/routes.js';
import { TraceOptions } from './options.js';
import { traceCommand } from './trace-command.js';
import { tracesOf } from './timeline.js';
import { isTraceFile, TraceLog } from './trace-log.js';
import { maxRecipients, type SessionRecord } from './trace-record.js';

const maxText = 500;

/** Follows each message from its connection to the last outcome. */
export const trace = definePlugin({
  name: 'trace',
  options: TraceOptions,
  needs: { configuration },
  commands: [traceCommand],
  provides: { traces },
  async setup(context, { options: { traceDays, traceBytes }, configuration: { data } }) {
    if (traceDays === 0) return { traces: noTraces };
    const { clock, health, http, log } = context;
    const folder = await context.folder('trace');
    watchFolder('trace', data, { trace: isTraceFile }, context);
    const records = await TraceLog.open(folder, { days: traceDays, bytes: traceBytes }, clock, log);
    recordMail(context, records);
    context.onClose(() => records.close());
    health.check('trace', () => ({ ...records.health(), page: '/trace' }));
    http.mount(traceEndpoints(records));
    http.navigate({ title: 'Trace', href: '/trace', order: 24, role: 'operate', group: 'Mail' });
    return { traces: { find: (text, { limit }) => tracesOf(records, text, { limit }) } };
  },
});

/** While nothing is recorded. */
const noTraces: Traces = { find: () => Promise.resolve([]) };

function recordMail({ clock, smtp }: PluginContext, traces: TraceLog): void {
  smtp.watch('accepted', (accepted) => recordAccepted(accepted, traces, clock.now()));
  smtp.watch('rejected', ({ session, stage, code, status, text, reversePath, recipient }) => {
    // A refused connection or sign-in is no message.
    if (reversePath === undefined && recipient === undefined) return;
    traces.add({
      kind: 'rejected',
      at: clock.now(),
      session: sessionRecord(session),
      stage,
      reply: { code, status, text: text.slice(0, maxText), host: null },
      ...(reversePath !== undefined && { sender: reversePath?.address ?? '' }),
      ...(recipient !== undefined && { recipient: recipient.address }),
    });
  });
  smtp.watch('outcome', (outcome) => recordOutcome(outcome, traces));
}

function recordAccepted(accepted: WatchedEvents['accepted'], traces: TraceLog, at: number): void {
  const { transaction, recipients, size, ms, messageId } = accepted;
  const { id, reversePath } = transaction;
  const session = sessionRecord(transaction.session);
  for (let first = 0; first < recipients.length; first += maxRecipients) {
    traces.add({
      kind: 'accepted',
      at,
      id,
      session,
      sender: reversePath?.address ?? '',
      recipients: recipients.slice(first, first + maxRecipients).map(recipientRecord),
      size,
      ms: Math.round(ms),
      ...(messageId !== undefined && { messageId }),
    });
  }
}

function recordOutcome({ id, at, status, target, attempts, nextAttemptAt, ...one }: Outcome, traces: TraceLog): void {
  const { reversePath, recipient, reply, reason } = one;
  traces.add({
    kind: 'outcome',
    at,
    id,
    sender: reversePath?.address ?? '',
    recipient: recipient.address,
    status,
    target,
    attempts,
    nextAttemptAt,
    reply: reply === null ? null : { ...reply, text: reply.text.slice(0, maxText) },
    ...(reason !== undefined && { reason: reason.slice(0, maxText) }),
  });
}

function sessionRecord({ id, since, listener, remote, hello, tls, user }: SmtpSession): SessionRecord {
  return {
    id,
    since,
    listener: listener.name,
    remote: remote.address,
    ...(hello !== undefined && { hello: hello.name }),
    ...(tls !== undefined && { tls: `${tls.protocol} ${tls.cipher}` }),
    ...(user !== undefined && { user: user.username }),
  };
}

function recipientRecord({ address, hop, discarded }: Recipient) {
  return {
    address: address.address,
    ...(hop !== undefined && { target: hop.target, destination: hop.destination }),
    ...(discarded && { discarded }),
  };
}
