import type { Readable } from 'node:stream';

/** A place for a message in a mailbox (or queue): an absolute folder and a file name in it. */
export interface LinkTarget {
  readonly folder: string;
  readonly name: string;
  /** No file can have the name, for 128 bits of chance are in it: nobody looks whether it is taken, and a file that had it would be lost. */
  readonly isUnique?: boolean;
  /** Name of the delivery target that finds the message again after a crash, wherever others have moved it since. */
  readonly owner?: string;
}

/** A message that is durable without a file. */
export interface LoggedMessage {
  /** The bytes of the whole file; undefined once it is in its place, or nobody wants it. */
  readonly content: Buffer | undefined;
  /** Nobody wants it any more. True when there is no file of it, and will be none; false when it is in its place and must be removed there. */
  drop(): boolean;
}

/**
 * A message that is wholly received. It knows how to become durable, and callers do not: a file with its own fsync, or
 * a record in a log that many share.
 *
 * The file is `Return-Path:` line, trace header fields, message; the offsets of the parts are kept.
 */
export interface SpooledMessage {
  /** Bytes of the whole file: what `S=` and `W=` say, for line ends are CRLF. */
  readonly size: number;
  /** Where the trace header fields begin, behind `Return-Path:`. Relays read from here. */
  readonly traceOffset: number;
  /** Where the message as received begins. */
  readonly messageOffset: number;
  /** CRC-32 of the bytes from `traceOffset` on; absent where nobody has worked it out. */
  readonly checksum?: number;
  /** The header block as received, through its empty line, bounded; what hooks and indexes look at. */
  readonly head: Buffer;
  /** The bytes from `offset` (default 0) to the end. */
  open(offset?: number): Readable;
  /** The same, where all of it is in memory; absent or undefined where it must be read from the disk. */
  memory?(offset?: number): Buffer | undefined;
  /** Whatever can be done before the message is placed is done, and nothing is visible. Idempotent; shared by all targets. */
  sync(): Promise<void>;
  /**
   * Makes the message visible in all these places or in none. Resolves when it is durable and there. Throws EEXIST (unless the name is `unique`) and
   * ENOENT as the system says them, every other fault as a problem; then it is in none of them, now or after a crash.
   */
  link(placements: readonly LinkTarget[]): Promise<void>;
  /**
   * Makes the message durable without a file, for who will most likely need none: it is placed later, if it is still wanted when its record
   * has to go, and by the replay after a crash. Undefined where that cannot be had: then it is to be placed. Throws as `place` does.
   *
   * @param stored called when it has come to its place
   * @param before bytes that stand in front of the message in its file
   */
  keepInLog?(placement: LinkTarget, stored: () => void, before?: Buffer): Promise<LoggedMessage | undefined>;
  /** Takes back what one `place` or `keep` did, after a sibling failed. Resolves false when it could not be removed. */
  rollback(placements: readonly LinkTarget[]): Promise<boolean>;
  /** Same message with header fields put in front or taken away: one rewrite of the file. It takes the place of this one, which is released. */
  rewrite(edit: HeaderEdit): Promise<SpooledMessage>;
  /** The spool lets go of it; placements stay. */
  release(): Promise<void>;
}

export interface HeaderEdit {
  readonly add: readonly (readonly [name: string, value: string])[];
  readonly remove: readonly string[];
}

/** Takes a message while it arrives; its faults are problems. After a failed `write` only `discard` is allowed. */
export interface SpoolWriter {
  /** Bytes written so far, prologue included. */
  readonly size: number;
  /** Resolves at once unless the disk is behind: then wait, it is the back-pressure of the peer. */
  write(chunk: Buffer): Promise<void> | void;
  finish(): Promise<SpooledMessage>;
  discard(): Promise<void>;
}

export interface Spool {
  /**
   * No promise unless the disk has to be asked for its room.
   *
   * @param returnPath the `Return-Path:` line with its CRLF
   * @param trace the trace header fields with their CRLFs
   */
  create(returnPath: Buffer, trace: Buffer): SpoolWriter | Promise<SpoolWriter>;
}
