import type { SessionResult } from '../case/case-run.js';

/** What the form begins with. */
export const exampleCase = `{
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

/** Nobody looks at the replies to queued mail: its case has no assertions. */
const queueExample = exampleCase.replace(/\n {2}assertions:.*/, '');

/** One form has one address: not every browser lets a button name another one. */
export const sendPage = (routes: readonly string[], mode: 'now' | 'queue') => ({
  routes,
  example: mode === 'now' ? exampleCase : queueExample,
  action: mode === 'now' ? '/client/send' : '/client/queue',
  label: mode === 'now' ? 'Send now' : 'Queue',
  modes: [
    { title: 'Send now', href: '/client/send', current: mode === 'now' },
    { title: 'Queue', href: '/client/send?mode=queue', current: mode === 'queue' },
  ],
});

/** The result with what a reader of the transcript wants to see. */
export function resultPage(result: SessionResult) {
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
