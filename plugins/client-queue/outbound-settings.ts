import { problem } from '../../core/problem.js';
import { DestinationRules } from './destination-key.js';
import type { ClientQueueSettings } from './options.js';
import { ReplyClassification } from './reply-classification.js';
import { RetrySchedule } from './retry-schedule.js';

/** The options in force, and what is made of them. */
export class OutboundSettings {
  #current: ClientQueueSettings;
  #rules: DestinationRules;
  #schedule: RetrySchedule;
  #classification: ReplyClassification;

  /** @throws Problem `invalid` for options that do not fit together */
  constructor(settings: ClientQueueSettings) {
    refuseUnknownRoute(settings);
    this.#current = settings;
    this.#rules = new DestinationRules(settings);
    this.#schedule = new RetrySchedule(settings.retry);
    this.#classification = new ReplyClassification(settings.replyRules);
  }

  get current(): ClientQueueSettings {
    return this.#current;
  }

  get rules(): DestinationRules {
    return this.#rules;
  }

  get schedule(): RetrySchedule {
    return this.#schedule;
  }

  get classification(): ReplyClassification {
    return this.#classification;
  }

  /** All or nothing. @throws Problem `invalid`, or `conflict` for what only a restart can change */
  change(settings: ClientQueueSettings): void {
    for (const name of ['maxEntries', 'keepFinished'] as const) {
      if (settings[name] !== this.#current[name]) {
        throw problem('conflict', `plugins.client-queue.${name} can be changed only by a restart.`);
      }
    }
    const made = new OutboundSettings(settings);
    this.#current = settings;
    this.#rules = made.rules;
    this.#schedule = made.schedule;
    this.#classification = made.classification;
  }
}

function refuseUnknownRoute({ routes, defaultRoute }: ClientQueueSettings): void {
  if (defaultRoute === undefined || Object.hasOwn(routes, defaultRoute)) return;
  throw problem(
    'invalid',
    `plugins.client-queue.defaultRoute names the route ${defaultRoute}, which is not among its routes.`,
  );
}
