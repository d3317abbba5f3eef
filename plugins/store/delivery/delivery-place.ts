import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { isProblem, type Problem } from '../../../core/problem.js';
import type { MailboxQuotas, QuotaReservation } from './mailbox-quota.js';
import type { MaildirTree } from '../maildir/maildir.js';
import { hasMark } from '../maildir/maildir-name.js';

export interface PlaceDeps {
  readonly maildirs: Pick<MaildirTree, 'ensure'>;
  /** Without quotas if absent. */
  readonly quotas?: Pick<MailboxQuotas, 'reserve' | 'noteChange'>;
}

/** One mailbox of a delivery: the target folder and the reserved quota. */
export class MailboxDelivery {
  readonly #deps: PlaceDeps;
  readonly #mailbox: MailboxName;
  /** Mark of a delivery that may have happened before a crash: a message with this mark means that it is done. */
  readonly #mark: string | undefined;
  /** True where an earlier attempt may have been interrupted: the whole mailbox is searched then. */
  #mayBeThere: boolean;
  #folder: string | undefined;
  #room: QuotaReservation | undefined;
  #refusal: Problem | undefined;
  #isGivenUp = false;

  constructor(deps: PlaceDeps, mailbox: MailboxName, mark: string | undefined, mayBeThere: boolean) {
    this.#deps = deps;
    this.#mailbox = mailbox;
    this.#mark = mark;
    this.#mayBeThere = mayBeThere;
  }

  /** Undefined when the mailbox is full, or already has the message from an earlier attempt. */
  get folder(): string | undefined {
    return this.#folder;
  }

  /** The error of a full mailbox. */
  get refusal(): Problem | undefined {
    return this.#refusal;
  }

  /** Creates the mailbox and reserves quota if it has one. */
  async prepare(size: number): Promise<void> {
    await this.find();
    if (this.#folder === undefined) return;
    try {
      this.#room = await this.#deps.quotas?.reserve(this.#mailbox, size);
    } catch (error) {
      if (!isProblem(error) || error.problem !== 'mailbox-full') throw error;
      this.#refusal = error;
      this.#folder = undefined;
    }
    if (this.#isGivenUp) this.release();
  }

  /** Creates the mailbox again if it has vanished. */
  async find(): Promise<void> {
    const inbox = await this.#deps.maildirs.ensure(this.#mailbox);
    this.#folder = this.#mayBeThere && (await this.#isThere(inbox)) ? undefined : `${inbox}/new`;
    // A second call follows a failed attempt.
    this.#mayBeThere = true;
  }

  /** Records the change (negative for a removal) in the background, since usage is an estimate. */
  noteUsage(size: number, count: number): void {
    const room = this.#room;
    this.#room = undefined;
    if (this.#folder === undefined) room?.release();
    else void (room?.commit(size, count) ?? this.#deps.quotas?.noteChange(this.#mailbox, size, count));
  }

  /** Releases the reservation: the message is not delivered. */
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
