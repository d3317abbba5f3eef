import type {
  ExplainedReply,
  ExplainedStep,
  Explanation,
  ExplainQuestion,
} from '../../../core/contracts/explaining.js';
import type { HookDescription } from '../../../core/pipeline/hook.js';
import { type Stage, stages } from '../../../core/pipeline/verdict.js';

const words: Readonly<Record<Stage, { readonly title: string; readonly when: string }>> = {
  connect: { title: 'connect', when: 'A client has connected; the greeting waits for the answer.' },
  ehlo: { title: 'ehlo', when: 'It has said EHLO, HELO or LHLO.' },
  auth: { title: 'auth', when: 'It wants to sign in.' },
  mailFrom: { title: 'mailFrom', when: 'MAIL: it has named the sender.' },
  rcptTo: { title: 'rcptTo', when: 'RCPT: it has named a recipient; somebody must take it, or it is refused.' },
  message: { title: 'message', when: 'The message has come; the answer to the final dot waits.' },
  deliver: { title: 'deliver', when: 'The last word before it is handed to its targets.' },
  attempt: { title: 'attempt', when: 'The queue is about to deliver it, to another server or a target of this one.' },
};

/** Model of the pipeline page. */
export function chainByStage(hooks: readonly HookDescription[]) {
  return {
    stages: stages.map((stage) => ({ ...words[stage], hooks: hooks.filter((hook) => hook.stage === stage) })),
    question: {
      ip: '192.0.2.1',
      ehlo: 'client.example',
      mode: 'mx',
      authenticated: '',
      tls: false,
      mail: '',
      rcpt: '',
    },
  };
}

const tones: Readonly<Record<ExplainedStep['verdict'], string>> = {
  next: 'neutral',
  accept: 'good',
  route: 'good',
  change: 'info',
  hold: 'warn',
  defer: 'warn',
  discard: 'warn',
  reject: 'bad',
  notAsked: 'neutral',
};

const verdicts: Readonly<Record<ExplainedStep['verdict'], string>> = {
  next: 'no opinion',
  accept: 'accepts',
  route: 'takes it',
  change: 'changes it',
  hold: 'holds it',
  defer: 'defers',
  discard: 'discards it',
  reject: 'rejects',
  notAsked: 'not asked',
};

const shownStep = (step: ExplainedStep) => ({
  ...step,
  said: step.shadow && step.verdict !== 'next' ? `would: ${verdicts[step.verdict]}` : verdicts[step.verdict],
  tone: step.shadow ? 'neutral' : tones[step.verdict],
});

const written = (reply: ExplainedReply | null): string | null =>
  reply === null ? null : [reply.code, reply.status ?? [], reply.text].flat().join(' ');

export function explanationPage(question: ExplainQuestion, { stages: before, recipients, unasked }: Explanation) {
  return {
    question: { ...question, authenticated: question.authenticated ?? '', rcpt: question.rcpt.join(', ') },
    stages: before.map((stage) => ({ ...stage, steps: stage.steps.map(shownStep), reply: written(stage.reply) })),
    recipients: recipients.map((one) => ({ ...one, steps: one.steps.map(shownStep), reply: written(one.reply) })),
    unasked,
    refusedAt: before.find(({ outcome }) => outcome === 'refuse')?.stage ?? null,
  };
}
