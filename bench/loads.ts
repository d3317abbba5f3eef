/** One row of the table. */
export interface Load {
  readonly title: string;
  readonly messages: number;
  readonly bytes: number;
  readonly sessions: number;
  /** One connection for all messages of a session, or one for each. */
  readonly keep: boolean;
}

/** Messages by sessions: one session takes longer for each. */
const sizes = [
  { size: '5 KB', bytes: 5000, messages: [2000, 4000, 5000], quick: 2000 },
  { size: '1 MB', bytes: 1_000_000, messages: [200, 300, 300], quick: 100 },
];

/** Every size with 1, 10 and 50 sessions, on kept connections and with one for each message. */
export function loadsOf(quick: boolean): readonly Load[] {
  return sizes.flatMap(({ size, bytes, messages, quick: few }) =>
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
}
