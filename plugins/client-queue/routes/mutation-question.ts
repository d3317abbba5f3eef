import type { EntrySummary } from '../../../core/contracts/queue-entry.js';
import type { Mutation } from '../../../core/contracts/queue-list.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue.js';
import { counted } from '../../../core/counted.js';
import { respond, type Response } from '../../../core/http/endpoint.js';
import { summaryAnswer } from '../entry-answer.js';
import { writtenFilter } from '../queue-query.js';
import { type Chosen, previewOf } from '../selection.js';

interface Asked {
  readonly mutation: Mutation;
  readonly chosen: Chosen;
  readonly queue: RelayQueue;
  readonly back: string;
}

/** The page that says what an operation will touch, and asks. */
export async function questionOf({ mutation, chosen, queue, back }: Asked): Promise<Response<never>> {
  const sample = await previewOf(chosen, queue);
  const { operation } = mutation;
  const model = {
    operation,
    sentence: sentenceOf(mutation, chosen, sample),
    action: `/client/queue/${operation}`,
    fields: [...selectorFields(chosen), ...optionFields(mutation), { name: 'back', value: back }],
    label: labels[operation],
    isDestructive: operation === 'delete' || operation === 'bounce',
    askReason: operation === 'bounce' || operation === 'hold',
    reason: 'reason' in mutation ? (mutation.reason ?? '') : '',
    sample: sample.map(summaryAnswer),
    more: Math.max(0, chosen.count - sample.length),
    back,
  };
  // The endpoint's own model is what scripts get, and those are never asked.
  return respond({ view: 'client-queue/question.njk', model }) as unknown as Response<never>;
}

const labels = {
  retry: 'Try them now',
  delete: 'Delete them',
  bounce: 'Return them to their senders',
  hold: 'Hold them',
  release: 'Release them',
} as const;

const sentences = {
  retry: 'will be tried again at once',
  delete: 'will be deleted. Nobody is told, and it cannot be undone',
  bounce: 'will be returned: each sender gets a notification, and it cannot be undone',
  hold: 'will be kept back until somebody releases them',
  release: 'will be let go on',
} as const;

function sentenceOf({ operation }: Mutation, { count }: Chosen, sample: readonly EntrySummary[]): string {
  const senders = new Set(sample.map(({ sender }) => sender ?? '<>'));
  const whose = count === sample.length && senders.size > 0 ? ` of ${counted(senders.size, 'sender')}` : '';
  return `${counted(count, 'entry', 'entries')}${whose} ${sentences[operation]}.`;
}

function selectorFields({ selector, count }: Chosen): readonly { readonly name: string; readonly value: string }[] {
  if ('uids' in selector) return selector.uids.map((value) => ({ name: 'uids', value }));
  return [
    { name: 'filter', value: writtenFilter(selector.filter) },
    { name: 'expect', value: String(count) },
  ];
}

/** A reason is asked for on the page itself. */
function optionFields(mutation: Mutation): readonly { readonly name: string; readonly value: string }[] {
  if (mutation.operation === 'bounce' && mutation.status !== undefined)
    return [{ name: 'status', value: mutation.status }];
  const at = mutation.operation === 'retry' ? mutation.at : mutation.operation === 'hold' ? mutation.until : undefined;
  if (at === undefined) return [];
  return [{ name: mutation.operation === 'retry' ? 'at' : 'until', value: new Date(at).toISOString() }];
}
