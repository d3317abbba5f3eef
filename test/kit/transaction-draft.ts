import type { Clock } from '../../core/clock.js';
import { parseAddress } from '../../core/mime/address.js';
import type { WatchedEvent, WatchedEvents } from '../../core/pipeline/events.js';
import { internalSession } from '../../core/pipeline/submission.js';
import { uniqueId } from '../../core/disk/id.js';
import type { Recipient, SmtpSession, Transaction } from '../../core/pipeline/transaction.js';

/** What an event is about, in short; what is left out is made up. */
export interface EventAbout {
  readonly from?: string;
  readonly to?: string | readonly string[];
  readonly ip?: string;
  readonly user?: string;
}

/** An event in short, with whatever of it matters written out. */
export type EventDraft<E extends WatchedEvent> = EventAbout & Partial<WatchedEvents[E]>;

/** Fills in what the test has not said. */
export function eventOf<E extends WatchedEvent>(event: E, draft: EventDraft<E>, clock: Clock): WatchedEvents[E] {
  const { from = 'anna@example.com', to = 'bob@example.org', ip = '192.0.2.1', user, ...said } = draft;
  const session = sessionOf(clock, ip, user);
  const transaction = transactionOf(session, from, [to].flat());
  const [recipient] = transaction.recipients;
  const taken = { code: 250, status: '2.0.0', text: 'Ok', host: 'mx.example.org' };
  const usual: { readonly [E in WatchedEvent]?: object } = {
    accepted: { transaction, size: 1000, ms: 10 },
    rejected: {
      session,
      stage: 'rcptTo',
      code: 550,
      status: '5.7.1',
      text: 'No',
      reversePath: transaction.reversePath,
      recipient: recipient?.address,
    },
    delivered: { transaction, recipient, target: 'mailbox' },
    deferred: { transaction, recipient, reason: '451 4.3.0 Local error, try again later' },
    bounced: { transaction, recipient, reason: '550 5.1.1 No such user here' },
    outcome: {
      id: transaction.id,
      reversePath: transaction.reversePath,
      recipient: recipient?.address,
      status: 'delivered',
      reply: taken,
      attempts: 1,
      nextAttemptAt: null,
      at: clock.now(),
      target: 'relay',
    },
    attempted: {
      attempt: {
        id: transaction.id,
        reversePath: transaction.reversePath,
        recipients: transaction.recipients.map(({ address }) => address),
        target: 'relay',
        destination: recipient?.address.domain,
        attempts: 0,
        queuedAt: clock.now(),
        size: 1000,
      },
      at: clock.now(),
      ms: 10,
      results: [{ recipient: recipient?.address, status: 'delivered', reply: taken, nextAttemptAt: null }],
      host: 'mx.example.org[192.0.2.25]:25',
      tls: 'TLSv1.3',
      possibleDuplicate: false,
    },
    ended: { transaction },
    closed: { session, ms: 10, messages: 1 },
  };
  // What a test leaves out of an event that has no usual form is left out.
  return { ...usual[event], ...said } as unknown as WatchedEvents[E];
}

function sessionOf(clock: Clock, address: string, username: string | undefined): SmtpSession {
  return internalSession(clock, {
    listener: { name: 'mx', mode: 'mx' },
    remote: { address, port: 49_152 },
    exempt: false,
    hello: { verb: 'EHLO', name: 'client.example.com' },
    user: username === undefined ? undefined : { username },
    internal: false,
  });
}

function transactionOf(session: SmtpSession, from: string, to: readonly string[]): Transaction {
  return {
    id: uniqueId(),
    session,
    reversePath: from === '' ? null : parseAddress(from),
    declaredSize: undefined,
    body: '8BITMIME',
    smtputf8: false,
    recipients: to.map((written): Recipient => {
      const address = parseAddress(written);
      return { address, hop: { target: 'mailbox', destination: address.address }, discarded: false };
    }),
    notes: new Map(),
  };
}
