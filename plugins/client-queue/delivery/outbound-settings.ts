import { problem } from '../../../core/problem.js';
import { DestinationRules } from './destination-key.js';
import { DkimSigner } from './dkim-signer.js';
import type { ClientQueueSettings } from '../options.js';
import { ReplyClassification } from './reply-classification.js';
import { RetrySchedule } from './retry-schedule.js';

/** The options in force, and what is made of them. */
export class OutboundSettings {
  #current: ClientQueueSettings;
  #rules: DestinationRules;
  #schedule: RetrySchedule;
  #classification: ReplyClassification;
  #signer: DkimSigner;
  readonly #folder: string;

  /**
   * @param folder what relative paths of keys are relative to
   * @throws Problem `invalid` for options that do not fit together, or a key that cannot be used
   */
  constructor(settings: ClientQueueSettings, folder: string) {
    refuseUnknownRoute(settings);
    this.#folder = folder;
    this.#signer = new DkimSigner(settings.dkim, folder);
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

  get signer(): DkimSigner {
    return this.#signer;
  }

  /** All or nothing. @throws as the constructor */
  change(settings: ClientQueueSettings): void {
    const made = new OutboundSettings(settings, this.#folder);
    this.#current = settings;
    this.#rules = made.rules;
    this.#schedule = made.schedule;
    this.#classification = made.classification;
    this.#signer = made.signer;
  }
}

function refuseUnknownRoute({ routes, defaultRoute }: ClientQueueSettings): void {
  if (defaultRoute === undefined || Object.hasOwn(routes, defaultRoute)) return;
  throw problem(
    'invalid',
    `plugins.client-queue.defaultRoute names the route ${defaultRoute}, which is not among its routes.`,
  );
}
