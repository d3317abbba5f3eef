import type { Delivery, DeliveryTarget, RecipientOutcome } from '../../../core/pipeline/delivery-target.js';
import { problem } from '../../../core/problem.js';
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
  /** It knows its outcomes before its commit. */
  readonly foresees?: boolean;
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
  /** Ids: as a queue has one entry for each message. */
  readonly #prepared = new Set<string>();

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
    let isPrepared = false;
    const outcomes = () => this.#options.outcomes ?? recipients.map((one, index) => this.#outcome(one, index));
    return {
      body: async (message) => {
        if (this.#prepared.has(transaction.id)) throw problem('conflict', 'It is prepared already');
        this.#prepared.add(transaction.id);
        isPrepared = true;
        this.bodies.push(message);
        this.texts.push(String(message.memory?.(message.messageOffset)));
        await this.#step('body');
      },
      commit: async () => {
        await this.#step('commit');
        const given = outcomes();
        for (const { recipient, outcome } of given) {
          if (outcome === 'delivered') this.holds.push(recipient.address.address);
        }
        return given;
      },
      ...(this.#options.foresees === true && { expected: outcomes }),
      complete: () => {
        this.completions += 1;
        this.#prepared.delete(transaction.id);
      },
      abort: () => {
        if (isPrepared) this.#prepared.delete(transaction.id);
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
