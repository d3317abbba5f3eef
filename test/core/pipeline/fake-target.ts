import type { Delivery, DeliveryTarget, RecipientOutcome } from '../../../core/pipeline/delivery-target.js';
import type { SpooledMessage } from '../../../core/spool/spool.js';
import type { Recipient, Transaction } from '../../../core/pipeline/transaction.js';

export type Step = 'start' | 'body' | 'commit';

export interface FakeTargetOptions {
  readonly live?: boolean;
  /** The step that throws, and what. */
  readonly fails?: { readonly step: Step; readonly error: Error };
  /** The step that never ends, until it is let go. */
  readonly hangs?: Step;
  /** Outcome of each recipient; delivered if absent. */
  readonly outcome?: (recipient: Recipient, index: number) => RecipientOutcome;
  /** What to answer instead of one outcome each. */
  readonly outcomes?: readonly RecipientOutcome[];
}

/** A target that notes what is asked of it, and knows what it has delivered and not taken back. */
export class FakeTarget implements DeliveryTarget {
  readonly live: boolean;
  readonly name: string;
  readonly steps: string[];
  /** Addresses that have the message now. */
  readonly holds: string[] = [];
  /** What it was given to deliver, as text. */
  readonly bodies: SpooledMessage[] = [];
  /** Of messages that were in memory. */
  readonly texts: string[] = [];
  recipients: readonly Recipient[] = [];
  transaction: Transaction | undefined;
  aborts = 0;
  completions = 0;
  readonly #options: FakeTargetOptions;
  #go: () => void = () => undefined;

  constructor(name: string, steps: string[], options: FakeTargetOptions = {}) {
    this.name = name;
    this.steps = steps;
    this.live = options.live === true;
    this.#options = options;
  }

  /** Lets a step that hangs end. */
  release(): void {
    this.#go();
  }

  async start(transaction: Transaction, recipients: readonly Recipient[]): Promise<Delivery> {
    this.transaction = transaction;
    this.recipients = recipients;
    await this.#step('start');
    return {
      body: async (message) => {
        this.bodies.push(message);
        this.texts.push(String(message.memory?.(message.messageOffset)));
        await this.#step('body');
      },
      commit: async () => {
        await this.#step('commit');
        const outcomes = this.#options.outcomes ?? recipients.map((one, index) => this.#outcome(one, index));
        for (const { recipient, outcome } of outcomes) {
          if (outcome === 'delivered') this.holds.push(recipient.address.address);
        }
        return outcomes;
      },
      complete: () => void (this.completions += 1),
      abort: () => {
        this.steps.push(`${this.name} abort`);
        this.aborts += 1;
        // What was sent to another server stays sent.
        if (!this.live) this.holds.length = 0;
        return Promise.resolve();
      },
    };
  }

  #outcome(recipient: Recipient, index: number): RecipientOutcome {
    return this.#options.outcome?.(recipient, index) ?? { recipient, outcome: 'delivered' };
  }

  async #step(step: Step): Promise<void> {
    this.steps.push(`${this.name} ${step}`);
    const { fails, hangs } = this.#options;
    if (hangs === step) {
      await new Promise<void>((resolve) => {
        this.#go = resolve;
      });
    }
    // A real target waits for the disk.
    await Promise.resolve();
    if (fails?.step === step) throw fails.error;
  }
}

export const refused =
  (code = 550, status = '5.1.1', text = 'Unknown') =>
  (recipient: Recipient): RecipientOutcome => ({ recipient, outcome: 'refused', code, status, text });

export const deferred =
  (code = 452, status = '4.2.2', text = 'Full') =>
  (recipient: Recipient): RecipientOutcome => ({ recipient, outcome: 'deferred', code, status, text });
