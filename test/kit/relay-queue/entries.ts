import type { NewEntry, NewRecipient, RecordedReply } from '../../../core/contracts/queue-entry.js';
import type { ClaimOptions, Lease, Settlement } from '../../../core/contracts/relay-queue-store.js';
import { uniqueId } from '../../../core/disk/id.js';

export interface EntryWishes extends Partial<Omit<NewEntry, 'recipients'>> {
  /** Addresses, or recipients; the destination of an address is its domain. */
  readonly to?: readonly (string | NewRecipient)[];
}

/** An entry as the delivery target makes it. */
export function newEntry(now: number, { to = ['rcpt@one.example'], ...wishes }: EntryWishes = {}): NewEntry {
  return {
    uid: uniqueId(),
    sender: 'sender@home.example',
    recipients: to.map((one) => (typeof one === 'string' ? recipient(one) : one)),
    protocol: 'smtp',
    route: null,
    eightBit: false,
    smtputf8: false,
    size: 0,
    subject: 'A subject',
    internetMessageId: '<id@home.example>',
    queuedAt: now,
    expiresAt: now + 432_000_000,
    warnAt: now + 14_400_000,
    nextAttempt: now,
    source: { listener: 'submission', user: 'sender@home.example', remoteAddress: '127.0.0.1' },
    ...wishes,
  };
}

function recipient(address: string): NewRecipient {
  return { address, destination: address.slice(address.lastIndexOf('@') + 1) };
}

export function reply(code: number, text: string, at: number): RecordedReply {
  const status = `${String(code).charAt(0)}.0.0`;
  return { code, status, text, host: 'mx.one.example', at };
}

export function claiming(now: number, wishes: Partial<ClaimOptions> = {}): ClaimOptions {
  return { now, limit: 100, room: () => 100, leaseMs: 60_000, ...wishes };
}

type Fate = 'delivered' | 'deferred' | 'bounced';

const codes: Readonly<Record<Fate, number>> = { delivered: 250, deferred: 451, bounced: 550 };
const outcomes = { delivered: 'delivered', deferred: 'deferred', bounced: 'failed' } as const;

/** All recipients of the lease have the same fate. A bounce has its notice. */
export function settlement(
  lease: Lease,
  fate: Fate,
  { at, nextAttempt = at + 300_000, text = fate }: { at: number; nextAttempt?: number; text?: string },
): Settlement {
  const said = reply(codes[fate], text, at);
  const recipients = lease.recipients.map(({ address }) => address);
  return {
    attempt: {
      at,
      ms: 12,
      destination: lease.destination,
      host: 'mx.one.example[192.0.2.1]:25',
      tls: 'TLSv1.3',
      recipients,
      outcome: outcomes[fate],
      reply: said,
      ...(lease.manual && { manual: true }),
    },
    results: lease.recipients.map(({ index }) => ({
      index,
      state: fate,
      reply: said,
      ...(fate === 'deferred' && { nextAttempt }),
    })),
    ...(fate === 'bounced' && { notices: [{ kind: 'failed', recipients, at }] }),
  };
}
