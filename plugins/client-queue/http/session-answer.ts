import { z } from 'zod';
import type { SessionResult } from '../case/case-run.js';
import type { TranscriptEntry } from '../../../core/smtp/client/channel.js';

const outcome = z.enum(['delivered', 'partial', 'failed']);

const Step = z.object({
  step: z.string(),
  command: z.string(),
  payload: z.string().describe('As it was sent; credentials are masked'),
  response: z.string().nullable(),
  error: z.string().nullable(),
  ms: z.number(),
});

/** What a session was, as answers show it. */
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
