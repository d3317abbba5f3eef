import type { HookAnswer } from '../../core/pipeline/hook-runner.js';
import type { Stage } from '../../core/pipeline/verdict.js';

/** What a client is answered, and who said so. A plain object: compare it with `assert.deepEqual`. */
export interface ClientAnswer {
  /** `accept` for 2yz and 3yz, `defer` for 4yz, `reject` for 5yz; `discard` and `hold` are a yes whose mail goes elsewhere. */
  readonly verdict: 'accept' | 'defer' | 'reject' | 'discard' | 'hold';
  readonly code: number;
  /** Enhanced status code; null where a reply has none: greeting, EHLO, 354. */
  readonly status: string | null;
  /** The text without codes; the lines of a longer reply are joined by `\n`. */
  readonly text: string;
  /** The stage that was asked last: `deliver` when a message got through. Null for what no hook is asked about, such as NOOP. */
  readonly stage: Stage | null;
  /** Whose hook decided; null when nobody objected, or the server itself did. */
  readonly plugin: string | null;
  /** Of `discard` and `hold`. */
  readonly reason?: string;
}

/** One reply as it came. */
export interface RawReply {
  readonly code: number;
  readonly status: string | null;
  readonly text: string;
}

/** Puts a reply and what the hooks have said before it together. */
export function answerOf(
  reply: RawReply,
  stage: Stage | null,
  said: readonly HookAnswer[],
  isStandIn: (plugin: string) => boolean,
): ClientAnswer {
  const decider = deciderOf(reply, said);
  const plugin = decider === undefined || isStandIn(decider.plugin) ? null : decider.plugin;
  const reached = decider?.stage ?? stage;
  const verdict = verdictOf(reply.code, decider);
  const { kind } = decider?.verdict ?? {};
  const reason = kind === 'discard' || kind === 'hold' ? { reason: reasonOf(decider) } : {};
  return { verdict, code: reply.code, status: reply.status, text: reply.text, stage: reached, plugin, ...reason };
}

/** The last hook that can have led to such a reply. */
function deciderOf({ code }: RawReply, said: readonly HookAnswer[]): HookAnswer | undefined {
  const no = said.findLast(({ verdict: { kind } }) => kind === 'reject' || kind === 'defer');
  if (code >= 400) return no ?? said.findLast(({ verdict: { kind } }) => ['route', 'hold', 'change'].includes(kind));
  return (
    said.findLast(({ verdict: { kind } }) => kind === 'discard' || kind === 'hold') ??
    said.findLast(({ verdict: { kind } }) => kind === 'route' || kind === 'accept')
  );
}

function verdictOf(code: number, decider: HookAnswer | undefined): ClientAnswer['verdict'] {
  if (code >= 500) return 'reject';
  if (code >= 400) return 'defer';
  const kind = decider?.verdict.kind;
  return kind === 'discard' || kind === 'hold' ? kind : 'accept';
}

function reasonOf(decider: HookAnswer | undefined): string {
  return decider !== undefined && 'reason' in decider.verdict ? decider.verdict.reason : '';
}
