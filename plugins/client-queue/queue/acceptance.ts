import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import type { PreparedEntry } from '../../../core/contracts/relay-queue-store.js';
import type { SpooledMessage } from '../../../core/spool/spool.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import type { StoredAcceptInput } from './stored-entry.js';
import type { Bodies, PlacedBody } from './bodies.js';
import type { Ledger } from './ledger.js';
import type { QueuedEntry } from './queued-entry.js';

export interface AcceptanceInput {
  readonly ledger: Ledger;
  readonly bodies: Bodies;
  readonly log: Log;
  readonly bounds: { readonly maxEntries: number };
}

/** Accepts mail: first stores its message, then writes the record that is the promise to deliver it. */
export class Acceptance {
  readonly #input: AcceptanceInput;
  readonly #preparing = new Set<string>();

  constructor(input: AcceptanceInput) {
    this.#input = input;
  }

  /** The message of that uid is stored, or is being stored, and has no entry yet. */
  isPreparing(uid: string): boolean {
    return this.#preparing.has(uid);
  }

  async prepare(given: NewEntry, message: SpooledMessage): Promise<PreparedEntry> {
    const { ledger, bodies, bounds } = this.#input;
    const { uid } = given;
    ledger.refuseWhileStalled();
    if (ledger.open.size + this.#preparing.size >= bounds.maxEntries) {
      throw problem('unavailable', 'The queue is full; try again later.');
    }
    if (given.recipients.length === 0) throw problem('invalid', 'An entry has one recipient at least.');
    if (ledger.find(uid) !== undefined) throw problem('conflict', 'There is such an entry already.');
    if (this.#preparing.has(uid))
      throw problem('unavailable', 'It is being handed in at this moment; try again later.');
    this.#preparing.add(uid);
    const entry = { ...given, size: message.size - message.traceOffset };
    const placed = await bodies.place(entry, message).catch((error: unknown) => {
      this.#preparing.delete(uid);
      throw error;
    });
    return this.#prepared(entry, message, placed);
  }

  /** Creates an entry for a message that `place` stores; nothing has changed when it rejects. */
  async adopt(accepted: StoredAcceptInput, place: () => Promise<void>, takeBack: () => Promise<void>): Promise<void> {
    const { uid } = accepted.envelope;
    this.#preparing.add(uid);
    try {
      await place();
      const entry = await this.#input.ledger.accept(accepted).catch(async (error: unknown) => {
        await takeBack();
        throw error;
      });
      this.#input.ledger.release(entry);
    } finally {
      this.#preparing.delete(uid);
    }
  }

  #prepared(entry: NewEntry, message: SpooledMessage, placed: PlacedBody): PreparedEntry {
    const { ledger, bodies } = this.#input;
    const { placements, traceOffset, checksum } = placed;
    let accepted: QueuedEntry | undefined;
    let ended = false;
    const withdraw = async (): Promise<void> => {
      ended = true;
      await message.rollback(placements);
      await bodies.removeEnvelope(entry.uid);
      this.#preparing.delete(entry.uid);
    };
    return {
      commit: async () => {
        if (ended || accepted !== undefined) throw problem('conflict', 'It was committed or taken back before.');
        try {
          accepted = await ledger.accept({
            envelope: entry,
            traceOffset,
            ...(checksum !== undefined && { checksum }),
          });
          this.#preparing.delete(entry.uid);
        } catch (error) {
          await withdraw();
          throw error;
        }
      },
      release: () => {
        if (!ended && accepted !== undefined) ledger.release(accepted);
      },
      abort: async () => {
        if (ended) return;
        if (accepted === undefined || (await this.#revoke(accepted))) await withdraw();
        ended = true;
      },
    };
  }

  async #revoke(entry: QueuedEntry): Promise<boolean> {
    if (entry.details.leases.length > 0 || entry.finishedAt !== null) {
      this.#input.log.error({ uid: entry.uid }, 'possible duplicate: a message that was taken back is on its way');
      return false;
    }
    await this.#input.ledger.forget(entry);
    return true;
  }
}
