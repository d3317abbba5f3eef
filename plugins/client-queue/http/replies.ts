import { z } from 'zod';
import { type AnyEndpoint, defineEndpoint } from '../../../core/http/endpoint.js';
import { outboundGroup, type RepliesDeps } from './client-deps.js';
import type { ReplyClassification } from '../delivery/reply-classification.js';

const written = /^\s*(\d{3})(?:[ -](\d\.\d{1,3}\.\d{1,3})(?=\s|$))?[ -]?(.*)$/s;
const steps = ['greeting', 'hello', 'starttls', 'auth', 'mail', 'rcpt', 'data', 'final'] as const;

const Explanation = z.object({
  action: z.enum(['deliver', 'defer', 'bounce']),
  category: z.string(),
  rule: z.string().nullable().describe('That refined what the first digit says'),
  retryAfter: z.int().nullable().describe('Seconds'),
  because: z.string(),
});

/** How the relay interprets a reply, to try rules in advance. */
export function replyEndpoints({ replies }: RepliesDeps): readonly AnyEndpoint[] {
  return [
    defineEndpoint({
      method: 'GET',
      path: '/client/replies',
      summary: 'How the relay classifies a reply: paste one, see the rule',
      group: outboundGroup,
      access: 'read',
      query: z.object({
        reply: z.string().max(2000).optional().describe('As a server said it: `451 4.7.1 Greylisted`.'),
        step: z.enum(steps).optional().describe('To what it was said; the recipient if absent.'),
      }),
      answer: z.object({
        explanation: Explanation.nullable(),
        rules: z.array(
          z.object({ name: z.string(), pattern: z.string(), category: z.string(), retryAfter: z.int().nullable() }),
        ),
      }),
      view: 'replies.njk',
      cache: 'no-store',
      handle({ query: { reply = '', step = 'rcpt' }, request }) {
        const { classification, rules: known } = replies();
        const explanation = reply.trim() === '' ? null : explain(reply, step, classification);
        const rules = known.map(({ name, pattern, category, retryAfter }) => ({
          name,
          pattern,
          category,
          retryAfter: retryAfter ?? null,
        }));
        const answer = { explanation, rules };
        return request.representation === 'html' ? { ...answer, reply, step, steps } : answer;
      },
    }),
  ];
}

function explain(reply: string, step: (typeof steps)[number], classification: ReplyClassification) {
  const [, code = '0', status, text = reply] = written.exec(reply) ?? [];
  return classification.explain(Number(code), status ?? null, text, step);
}
