import type { PluginContext } from '../../../core/plugin.js';
import type { WatchedEvents } from '../../../core/pipeline/events.js';

const DELIVERY_SECONDS = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60];
const SESSION_SECONDS = [0.05, 0.25, 1, 5, 30, 120, 600, 3600];
const MESSAGE_BYTES = [1024, 8192, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864];

/** Counts results of mail from the watchers' events. */
export function countMail({ metrics, smtp }: Pick<PluginContext, 'metrics' | 'smtp'>): void {
  const accepted = metrics.counter('mail_accepted_total', 'Messages that got their 250.', ['listener']);
  const recipients = metrics.counter('mail_recipients_total', 'Recipients of accepted messages.', ['listener']);
  const bytes = metrics.counter('mail_accepted_bytes_total', 'Bytes of accepted messages.', ['listener']);
  const sizes = metrics.histogram('mail_size_bytes', 'Sizes of accepted messages.', MESSAGE_BYTES);
  const seconds = metrics.histogram(
    'mail_delivery_seconds',
    'From the end of a message to its 250, durable delivery included.',
    DELIVERY_SECONDS,
  );
  const rejected = metrics.counter(
    'mail_rejected_total',
    'Refusals by a decision, by stage, class of the reply and enhanced status code.',
    ['stage', 'class', 'status'],
  );
  const outcomes = metrics.counter('mail_deliveries_total', 'Recipients by target and result.', ['target', 'result']);
  const sessions = metrics.counter('mail_sessions_closed_total', 'SMTP sessions that have ended.', ['listener']);
  const lengths = metrics.histogram('mail_session_seconds', 'Length of SMTP sessions.', SESSION_SECONDS);

  const ofListener = once((listener) => ({
    accepted: accepted.labels({ listener }),
    recipients: recipients.labels({ listener }),
    bytes: bytes.labels({ listener }),
  }));
  const deliveredTo = once((target) => outcomes.labels({ target, result: 'delivered' }));

  smtp.watch('accepted', ({ transaction, size, ms }) => {
    const counts = ofListener(transaction.session.listener.name);
    counts.accepted.inc();
    counts.recipients.inc(transaction.recipients.length);
    counts.bytes.inc(size);
    sizes.observe(size);
    seconds.observe(ms / 1000);
  });
  smtp.watch('rejected', ({ stage, code, status }) => {
    rejected.inc({ stage, class: `${Math.floor(code / 100)}xx`, status });
  });
  smtp.watch('delivered', ({ target }) => deliveredTo(target).inc());
  smtp.watch('deferred', ({ recipient }) => outcomes.inc({ target: targetOf(recipient), result: 'deferred' }));
  smtp.watch('bounced', ({ recipient }) => outcomes.inc({ target: targetOf(recipient), result: 'bounced' }));
  smtp.watch('closed', ({ session, ms }) => {
    sessions.inc({ listener: session.listener.name });
    lengths.observe(ms / 1000);
  });
}

/**
 * Caches the counter of each name: there are few listeners and targets, and label lookups cost more than the increment.
 */
function once<T>(make: (name: string) => T): (name: string) => T {
  const made = new Map<string, T>();
  return (name) => {
    const known = made.get(name) ?? make(name);
    made.set(name, known);
    return known;
  };
}

const targetOf = (recipient: WatchedEvents['deferred']['recipient']): string => recipient.hop?.target ?? 'none';
