import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { isProblem, type Problem } from '../../../core/problem.js';
import type { MailboxQuotas, QuotaReservation } from './mailbox-quota.js';
import type { MaildirTree } from '../maildir/maildir.js';
import { hasMark } from '../maildir/maildir-name.js';

export interface PlaceGround {
  readonly maildirs: Pick<MaildirTree, 'ensure'>;
  /** None are kept if absent. */
  readonly quotas?: Pick<MailboxQuotas, 'reserve' | 'noteChange'>;
}

/** One mailbox of a delivery: the folder that is to get the message, and the room that is set aside for it. */
export class MailboxDelivery {
  readonly #ground: PlaceGround;
  readonly #mailbox: MailboxName;
  /** Of a delivery that a crash may have hidden: it is done where a message with this mark is. */
  readonly #mark: string | undefined;
  /** The whole mailbox is looked through: only where an earlier try may have been interrupted. */
  #mayBeThere: boolean;
  #folder: string | undefined;
  #room: QuotaReservation | undefined;
  #refusal: Problem | undefined;
  #isGivenUp = false;

  constructor(ground: PlaceGround, mailbox: MailboxName, mark: string | undefined, mayBeThere: boolean) {
    this.#ground = ground;
    this.#mailbox = mailbox;
    this.#mark = mark;
    this.#mayBeThere = mayBeThere;
  }

  /** Undefined when the mailbox is full, or has the message from an earlier try. */
  get folder(): string | undefined {
    return this.#folder;
  }

  /** Why the mailbox takes nothing: it is full. */
  get refusal(): Problem | undefined {
    return this.#refusal;
  }

  /** Makes the mailbox, and sets room aside if it has a quota. */
  async prepare(size: number): Promise<void> {
    await this.find();
    if (this.#folder === undefined) return;
    try {
      this.#room = await this.#ground.quotas?.reserve(this.#mailbox, size);
    } catch (error) {
      if (!isProblem(error) || error.problem !== 'mailbox-full') throw error;
      this.#refusal = error;
      this.#folder = undefined;
    }
    if (this.#isGivenUp) this.release();
  }

  /** Makes the mailbox, again if it has vanished since. */
  async find(): Promise<void> {
    const inbox = await this.#ground.maildirs.ensure(this.#mailbox);
    this.#folder = this.#mayBeThere && (await this.#isThere(inbox)) ? undefined : `${inbox}/new`;
    // Asked again, it is after a try that failed.
    this.#mayBeThere = true;
  }

  /** What came, or went (negative); in the background, for nobody waits for an estimate. */
  noteUsage(size: number, count: number): void {
    const room = this.#room;
    this.#room = undefined;
    if (this.#folder === undefined) room?.release();
    else void (room?.commit(size, count) ?? this.#ground.quotas?.noteChange(this.#mailbox, size, count));
  }

  /** The message does not come. */
  release(): void {
    this.#isGivenUp = true;
    this.#room?.release();
  }

  async #isThere(inbox: string): Promise<boolean> {
    const mark = this.#mark;
    if (mark === undefined) return false;
    const names = await Promise.all(['new', 'cur'].map((part) => readdir(join(inbox, part))));
    return names.flat().some((name) => hasMark(name, mark));
  }
}
