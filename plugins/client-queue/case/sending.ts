import { abortAfter } from '../../../core/host/abort-after.js';
import { uniqueId } from '../../../core/disk/id.js';
import type { HopFinder } from '../../../core/dns/next-hop.js';
import { problem } from '../../../core/problem.js';
import type { ClientQueueSettings } from '../options.js';
import { compileAssertions } from './assertions.js';
import { planCase } from './case-plan.js';
import { runCase, type OpenSession, type SessionResult } from './case-run.js';
import type { OutgoingRequest } from './outgoing-request.js';
import { TargetList } from './target-list.js';

export interface SendingInput {
  readonly settings: () => ClientQueueSettings;
  readonly finder: HopFinder;
  readonly hostname: () => string;
  readonly open: OpenSession;
}

/** Sessions that callers wait for, at a time. */
const mostAtOnce = 20;
/** However slow a server is, the caller gets an answer by then. */
const longestMs = 5 * 60_000;

/** Sends at once, while the caller waits. */
export class Sending {
  readonly #input: SendingInput;
  #running = 0;

  constructor(input: SendingInput) {
    this.#input = input;
  }

  /**
   * @param signal the caller is gone
   * @throws Problem `forbidden` for servers that are not allowed, `invalid`, `unavailable` when there is no way or too much
   * to do, `session-timeout` when our own time is up
   */
  async send({ where, how, ...request }: OutgoingRequest, signal: AbortSignal): Promise<SessionResult> {
    if (this.#running >= mostAtOnce)
      throw problem('unavailable', 'Too many sessions are being run. Try again in a moment, or queue the mail.');
    this.#running += 1;
    const { settings: settingsNow, finder, hostname, open } = this.#input;
    const settings = settingsNow();
    const until = abortAfter(longestMs, signal);
    try {
      const assertions = await compileAssertions(request.assertions);
      const targets = new TargetList(settings.targets, finder);
      const plan = await planCase(where, request.domains, { settings, targets, finder }, until);
      return await runCase({
        uid: uniqueId(),
        plan,
        helloName: where.ehlo ?? hostname(),
        localAddress: settings.localAddress,
        stepMs: how.timeout * 1000,
        retry: how.retry,
        delayMs: how.delay * 1000,
        assertions,
        transactions: request.transactions(),
        open,
        signal: until,
      });
    } finally {
      this.#running -= 1;
    }
  }
}
