import type { RecipientOutcome } from '../contracts/delivery-target.js';
import type { LocalDelivery, Parcel } from '../contracts/local-delivery.js';
import type { Clock } from '../clock.js';
import { uniqueId } from '../disk/id.js';
import type { Spool, SpooledMessage } from '../spool/spool.js';
import type { Address } from '../mime/address.js';
import { problem } from '../problem.js';
import type { Chain } from './chain.js';
import { returnPathLine } from '../smtp/server/data.js';
import type { Recipient, SmtpSession, Transaction } from './transaction.js';
import type { Hop } from './verdict.js';

export interface LocalDeliveryInput {
  readonly pipeline: { snapshot(): Chain };
  readonly spool: Spool;
  readonly clock: Clock;
}

/** A session of the server with itself, as hooks and targets see it. */
export function internalSession(clock: Clock, about: Partial<SmtpSession> = {}): SmtpSession {
  return {
    id: uniqueId(),
    listener: { name: 'internal', mode: 'submission' },
    remote: { address: '127.0.0.1', port: 0 },
    exempt: true,
    hello: undefined,
    tls: undefined,
    user: undefined,
    internal: true,
    since: new Date(clock.now()).toISOString(),
    notes: new Map(),
    ...about,
  };
}

/** Brings messages that were accepted before to the delivery targets that are registered now. */
export class PipelineDelivery implements LocalDelivery {
  readonly #input: LocalDeliveryInput;

  constructor(input: LocalDeliveryInput) {
    this.#input = input;
  }

  async deliver(parcel: Parcel): Promise<readonly RecipientOutcome[]> {
    return this.#holding((chain) => this.#deliver(chain, parcel));
  }

  /** What leaves the pipeline meanwhile is not released before the end. */
  async #holding<T>(work: (chain: Chain) => T | Promise<T>): Promise<T> {
    const chain = this.#input.pipeline.snapshot();
    chain.hold();
    try {
      return await work(chain);
    } finally {
      chain.letGo();
    }
  }

  async #deliver(chain: Chain, parcel: Parcel): Promise<readonly RecipientOutcome[]> {
    const transaction = this.#transaction(parcel);
    const [first] = transaction.recipients;
    const name = first?.hop?.target ?? '';
    const target = chain.target(name);
    if (target === undefined) {
      throw problem('unavailable', { cause: new Error(`no plugin delivers to the target ${JSON.stringify(name)}`) });
    }
    const message = await this.#spool(parcel);
    try {
      const delivery = await target.start(transaction, transaction.recipients);
      try {
        await delivery.body(message);
        const outcomes = await delivery.commit();
        delivery.complete?.();
        for (const { recipient, outcome } of outcomes) {
          if (outcome === 'delivered') chain.emit('delivered', { transaction, recipient, target: name });
        }
        return outcomes;
      } catch (error) {
        await delivery.abort();
        throw error;
      }
    } finally {
      await message.release();
    }
  }

  async route(transaction: Transaction, address: Address): Promise<Hop | undefined> {
    const decision = await this.#holding((chain) => chain.route({ transaction, address }));
    return decision.outcome === 'pass' ? decision.hop : undefined;
  }

  #transaction({ id, reversePath, recipients, smtputf8, fresh = false }: Parcel): Transaction {
    return {
      id,
      session: internalSession(this.#input.clock),
      reversePath,
      declaredSize: undefined,
      body: '8BITMIME',
      smtputf8,
      repeatable: true,
      fresh,
      recipients: recipients.map(({ address, hop }): Recipient => ({ address, hop, discarded: false })),
      notes: new Map(),
    };
  }

  async #spool({ reversePath, content }: Parcel): Promise<SpooledMessage> {
    const writer = await this.#input.spool.create(returnPathLine(reversePath), Buffer.alloc(0));
    try {
      for await (const chunk of content()) await writer.write(chunk);
      return await writer.finish();
    } catch (error) {
      await writer.discard();
      throw error;
    }
  }
}
