import { createHash } from 'node:crypto';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import type { MailboxPlace } from '../../../core/contracts/mailbox-owners.js';
import { isMissing } from '../../../core/disk/fault.js';
import { makeFolder, syncFolder } from '../../../core/disk/folder.js';
import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import type { FramedInput } from './framed-input.js';
import { packedMailbox, unpackMailbox } from './mailbox-copy.js';
import type { OwnedMailboxes } from './owned-mailboxes.js';
import type { OwnerRow, OwnerTable } from './owner-table.js';
import { PeerFault, type PeerLink } from './peer-link.js';

/** First line of a mailbox that comes from another node. */
const Arrival = z.strictObject({ username: z.string(), from: z.string(), revision: z.string() });
const maxLine = 4096;

/** Folder below the root of the mailboxes for those that come. */
const incomingFolder = '.incoming';
/** Appended to the name of one that is complete. */
const whole = '.whole';

interface MovesInput {
  readonly node: string;
  readonly table: Pick<OwnerTable, 'change' | 'find' | 'ownedBy' | 'pull' | 'row' | 'save' | 'tasks'>;
  readonly link: Pick<PeerLink, 'ask'>;
  readonly log: Log;
  readonly mailboxes: Pick<OwnedMailboxes, 'close' | 'unused'>;
}

/**
 * Moves mailboxes. The row of the owner says what has to be done, so that it continues after a crash:
 *
 * 1. `moving` names the node to which it goes. The owner refuses to use the mailbox, and mail for it is queued.
 * 2. The owner sends all of it. The other node writes it beside its mailboxes and compares it.
 * 3. The other node makes itself the owner. `leaves` names the old one.
 * 4. It renames the copy into its place. A crash before that is made up for before the mailbox is used.
 * 5. The old owner removes its copy, and then `leaves`.
 */
export class MailboxMoves {
  readonly #input: MovesInput;
  /** Mailboxes whose copy could not be put into its place yet. */
  readonly #unready = new Map<string, () => void>();
  readonly #receiving = new Set<string>();
  #installing: Promise<void> = Promise.resolve();
  #place: MailboxPlace | undefined;
  #running: Promise<void> | undefined;

  constructor(input: MovesInput) {
    this.#input = input;
  }

  /** @param isKnown the table has been read from the database */
  async open(place: MailboxPlace, isKnown: boolean): Promise<void> {
    this.#place = place;
    const { table, node, log } = this.#input;
    await this.install(table.ownedBy(node));
    if (!isKnown) return;
    const folder = join(place.root, incomingFolder);
    const unready = new Set([...this.#unready.keys()].map((username) => folderFor(place, username) + whole));
    for (const path of (await namesIn(folder)).map((name) => join(folder, name))) {
      if (!path.endsWith(whole)) await rm(path, { recursive: true, force: true });
      else if (!unready.has(path)) log.error({ path }, 'a copy of a mailbox that is not of this node is kept');
    }
  }

  /** Does what the table says; a call while it is being done does nothing. */
  run(): Promise<void> {
    this.#running ??= this.#run().finally(() => (this.#running = undefined));
    return this.#running;
  }

  async #run(): Promise<void> {
    const { table, node } = this.#input;
    const place = this.#place;
    if (place === undefined) return;
    await this.install([...this.#unready.keys()]);
    for (const row of await table.tasks()) {
      if (row.leaves === node) await this.#removeOld(place, row);
      else await this.#move(place, row);
    }
  }

  async #removeOld(place: MailboxPlace, row: OwnerRow): Promise<void> {
    const { table, node, log } = this.#input;
    if (row.node === node || row.moving === node) return;
    await place.remove(row.username);
    await table.change(row, { leaves: null });
    log.info({ mailbox: row.username, node: row.node }, 'a mailbox has moved: its old copy is removed');
  }

  async #move(place: MailboxPlace, row: OwnerRow): Promise<void> {
    const { table, node, mailboxes, link, log } = this.#input;
    const { username, moving, leaves } = row;
    if (moving === null || moving === node || leaves !== null) return;
    if (this.#unready.has(username)) {
      await this.#note(row, 'its copy is not in its place yet');
      return;
    }
    await place.settled;
    await table.pull();
    // After a crash this node must not use the mailbox before it has asked the database.
    await table.save();
    if (table.find(username)?.moving !== moving) return;
    await mailboxes.unused(username);
    log.info({ mailbox: username, node: moving }, 'a mailbox is copied to another node');
    try {
      await link.ask(moving, '/mailbox', () => arrival(row, place.folderOf(username)), { slow: true });
    } catch (error) {
      if (!(error instanceof PeerFault)) throw error;
      log.warn({ mailbox: username, node: moving, err: error }, 'a mailbox could not be moved yet');
      await this.#note(row, error.message.slice(0, 300));
    }
    // It may have arrived without an answer.
    const after = await table.row(username);
    if (after?.leaves === node) await this.#removeOld(place, after);
  }

  async #note({ username, moving }: OwnerRow, note: string): Promise<void> {
    const { table } = this.#input;
    const now = await table.row(username);
    if (now?.moving === moving && now.note !== note) await table.change(now, { note });
  }

  /**
   * Takes a mailbox that its owner sends. Resolves when this node is the owner.
   *
   * @throws Problem, or Error when it was not whole
   */
  async receive(input: FramedInput): Promise<void> {
    const { table, node, mailboxes } = this.#input;
    const arrived = Arrival.parse(JSON.parse(await input.line(maxLine)));
    const { username } = arrived;
    const place = this.#place;
    if (place === undefined) throw problem('unavailable', 'This node has no mailboxes yet.');
    if (this.#receiving.has(username)) throw problem('conflict', `The mailbox ${username} is being received already.`);
    if (this.#unready.has(username))
      throw problem('conflict', `A copy of ${username} that is not in its place yet lies on ${node}.`);
    this.#receiving.add(username);
    const reopen = mailboxes.close(username);
    try {
      await mailboxes.unused(username);
      const row = await this.#announced(arrived);
      const count = (await place.count(username)) ?? 0;
      if (count > 0)
        throw problem(
          'conflict',
          `An old mailbox ${username} with ${count} messages lies on ${node}. Take it away from there first.`,
        );
      const folder = folderFor(place, username);
      await makeFolder(dirname(folder));
      await Promise.all([folder, folder + whole].map((path) => rm(path, { recursive: true, force: true })));
      await mkdir(folder, 0o700);
      await unpackMailbox(input, folder);
      await rename(folder, folder + whole);
      await syncFolder(dirname(folder));
      const isOwner = await table.change(row, { node, moving: null, leaves: row.node, note: null });
      if (!isOwner) throw problem('conflict', `The mailbox ${username} is not to move any more.`);
    } finally {
      this.#receiving.delete(username);
      reopen();
    }
  }

  /**
   * The row, when the mailbox is to come as it was sent. The row gets a new revision, so that whatever an earlier try has
   * begun in the database is over.
   */
  async #announced({ username, from, revision }: z.output<typeof Arrival>): Promise<OwnerRow> {
    const { table, node } = this.#input;
    const row = await table.row(username);
    const isMeant = row?.node === from && row.moving === node && row.leaves === null && row.revision === revision;
    const after = row !== undefined && isMeant && (await table.change(row, {})) ? await table.row(username) : undefined;
    if (after?.node === from && after.moving === node) return after;
    throw problem('conflict', `The mailbox ${username} is not to move from ${from} to ${node}.`);
  }

  /** Puts copies that are complete into their places, before the mailboxes are used. Never rejects. */
  install(usernames: readonly string[]): Promise<void> {
    this.#installing = this.#installing.then(() => this.#installAll(usernames));
    return this.#installing;
  }

  async #installAll(usernames: readonly string[]): Promise<void> {
    const place = this.#place;
    if (place === undefined || usernames.length === 0) return;
    const arrived = namesIn(join(place.root, incomingFolder));
    for (const username of usernames) await this.#install(place, username, arrived);
  }

  async #install(place: MailboxPlace, username: string, arrived: Promise<readonly string[]>): Promise<void> {
    const { mailboxes, log } = this.#input;
    const copy = folderFor(place, username) + whole;
    const path = place.folderOf(username);
    try {
      if ((await arrived).includes(basename(copy))) {
        if (((await place.count(username)) ?? 0) > 0) throw new Error('another mailbox lies in its place');
        await place.remove(username);
        await makeFolder(dirname(path));
        await rename(copy, path);
        await Promise.all([dirname(path), dirname(copy)].map((folder) => syncFolder(folder)));
      }
      this.#unready.get(username)?.();
      this.#unready.delete(username);
    } catch (error) {
      log.error({ mailbox: username, err: error }, 'a mailbox that has come cannot be put into its place');
      if (!this.#unready.has(username)) this.#unready.set(username, mailboxes.close(username));
    }
  }
}

const folderFor = ({ root }: MailboxPlace, username: string): string =>
  join(root, incomingFolder, createHash('sha256').update(username).digest('hex'));

async function namesIn(folder: string): Promise<readonly string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

async function* arrival({ username, node, revision }: OwnerRow, folder: string): AsyncGenerator<Buffer> {
  yield Buffer.from(`${JSON.stringify({ username, from: node, revision })}\n`);
  yield* packedMailbox(folder);
}
