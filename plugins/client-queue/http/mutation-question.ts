import type { Mutation, MutationPreview } from '../../../core/contracts/queue-list.js';
import { pluralize } from '../../../core/text/format.js';
import { type EndpointRequest, respond, type Response } from '../../../core/http/endpoint.js';
import { unconfirmed } from '../../../core/http/question.js';
import { summaryAnswer } from './entry-answer.js';
import { writtenFilter } from './queue-query.js';
import type { Chosen } from './selection.js';

interface Asked {
  readonly mutation: Mutation;
  readonly chosen: Chosen;
  readonly preview: MutationPreview;
  readonly back: string;
}

/** The page that says what an operation will touch, and asks. */
export function questionOf(
  { representation }: EndpointRequest,
  { mutation, chosen, preview, back }: Asked,
): Response<never> {
  const { operation } = mutation;
  if (representation !== 'html') throw unconfirmed(sentenceOf(mutation, preview));
  const model = {
    operation,
    sentence: sentenceOf(mutation, preview),
    action: `/client/queue/${operation}`,
    fields: [...selectorFields(chosen), ...optionFields(mutation), { name: 'back', value: back }],
    label: labels[operation],
    isDestructive: operation === 'delete' || operation === 'bounce',
    askReason: operation === 'bounce' || operation === 'hold',
    reason: 'reason' in mutation ? (mutation.reason ?? '') : '',
    sample: preview.sample.map(({ entry, addresses }) => ({
      ...summaryAnswer(entry),
      shown: addresses.slice(0, shownRecipients),
      moreRecipients: Math.max(0, addresses.length - shownRecipients),
    })),
    more: preview.messages - preview.sample.length,
    back,
  };
  // The endpoint's own model is what scripts get, and those are never asked.
  return respond({ view: 'client-queue/question.njk', model }) as unknown as Response<never>;
}

/** Recipients that a row shows; more of them are counted. */
const shownRecipients = 2;

const labels = {
  retry: 'Retry now',
  delete: 'Delete',
  bounce: 'Bounce',
  hold: 'Hold',
  release: 'Release',
} as const;

const sentences = {
  retry: 'will be retried now',
  delete: 'will be deleted. The senders get no notification, and it cannot be undone',
  bounce: 'will be bounced: each sender gets a notification, and it cannot be undone',
  hold: 'will be held until they are released',
  release: 'will be released',
} as const;

/** What is not affected. */
export function othersText(count: number): string {
  return `${pluralize(count, 'other recipient of the same messages is', 'other recipients of the same messages are')} not affected.`;
}

function sentenceOf({ operation }: Mutation, { recipients, messages, otherRecipients }: MutationPreview): string {
  const who = `${pluralize(recipients, 'recipient')} of ${pluralize(messages, 'message')} ${sentences[operation]}.`;
  if (otherRecipients === 0) return who;
  return `${who} ${othersText(otherRecipients)}`;
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
