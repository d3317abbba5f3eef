import type { TextBy, TlsUse } from './senders.js';

/** One row of the table. */
export interface Load {
  readonly title: string;
  readonly messages: number;
  readonly bytes: number;
  readonly sessions: number;
  /** One connection for all messages of a session, or one for each. */
  readonly keep: boolean;
  /** No TLS if absent. */
  readonly tls?: TlsUse;
  /** Of each message, all of them the same; one if absent. */
  readonly recipients?: number;
  /** By the own sender; `DATA` of any sender if absent. */
  readonly by?: TextBy;
}

/**
 * Messages of the first round, after which V8 has compiled what it is going to. A few come before each later one too: V8
 * of Node.js 20 discards compiled code of an idle process, after ten seconds if left alone.
 */
export const warmMessages = 8000;

/** Messages by sessions: one session takes longer for each. */
const sizes = [
  { size: '5 KB', bytes: 5000, messages: [2000, 4000, 5000], quick: 1000 },
  { size: '1 MB', bytes: 1_000_000, messages: [200, 300, 300], quick: 60 },
];

const others: readonly Load[] = [
  { title: '5 KB, 50 one per message, STARTTLS', tls: 'new', sessions: 50, keep: false, messages: 2000, bytes: 5000 },
  {
    title: '5 KB, 50 one per message, STARTTLS resumed',
    tls: 'resumed',
    sessions: 50,
    keep: false,
    messages: 2000,
    bytes: 5000,
  },
  { title: '5 KB, 10 kept, 100 recipients', recipients: 100, sessions: 10, keep: true, messages: 1000, bytes: 5000 },
  { title: '5 KB, 10 kept, text by DATA', by: 'DATA', sessions: 10, keep: true, messages: 4000, bytes: 5000 },
  { title: '5 KB, 10 kept, text by BDAT', by: 'BDAT', sessions: 10, keep: true, messages: 4000, bytes: 5000 },
  { title: '1 MB, 10 kept, text by DATA', by: 'DATA', sessions: 10, keep: true, messages: 300, bytes: 1_000_000 },
  { title: '1 MB, 10 kept, text by BDAT', by: 'BDAT', sessions: 10, keep: true, messages: 300, bytes: 1_000_000 },
];

/** Every size with 1, 10 and 50 sessions, on kept connections and with one for each message; then TLS and recipients. */
export function loadsOf(quick: boolean): readonly Load[] {
  const plain = sizes.flatMap(({ size, bytes, messages, quick: few }) =>
    [true, false].flatMap((keep) =>
      [1, 10, 50].map((sessions, index) => ({
        title: `${size}, ${sessions} ${keep ? 'kept' : 'one per message'}`,
        messages: quick ? few : (messages[index] ?? few),
        bytes,
        sessions,
        keep,
      })),
    ),
  );
  return [...plain, ...others.map((load) => (quick ? { ...load, messages: load.messages / 4 } : load))];
}
