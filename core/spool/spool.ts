import type { Readable } from 'node:stream';

/** Where a message is linked in a mailbox or queue: an absolute folder and a file name in it. */
export interface LinkTarget {
  readonly folder: string;
  readonly name: string;
  /**
   * The name has 128 random bits: it is linked without a look whether it is taken, and would replace a file that had
   * it.
   */
  readonly isUnique?: boolean;
  /** Delivery target that finds the message after a crash, wherever another program has moved it since. */
  readonly owner?: string;
}

export function targetPath({ folder, name }: LinkTarget): string {
  return `${folder}/${name}`;
}

/** A message that is durable by its log record alone, without a file. */
export interface LoggedMessage {
  /** The bytes of the whole file; undefined once the file is linked or the message is dropped. */
  readonly content: Buffer | undefined;
  /**
   * Gives the message up. True when there is no file and will be none; false when the file is linked and the caller
   * must remove it.
   */
  drop(): boolean;
}

/**
 * A message that is wholly received. How it becomes durable is hidden from callers: as a file with its own fsync, or as
 * a record in the commit log.
 *
 * The file holds the `Return-Path:` line, the trace header fields and the message as received.
 */
export interface SpooledMessage {
  /** Bytes of the whole file; equals `S=` and `W=` of a Maildir name, since line ends are CRLF. */
  readonly size: number;
  /** Start of the trace header fields, after `Return-Path:`. Relays read from here. */
  readonly traceOffset: number;
  /** Start of the message as received. */
  readonly messageOffset: number;
  /** CRC-32 of the bytes from `traceOffset` on; absent when it was not computed. */
  readonly checksum?: number;
  /** The header block as received, including its empty line, bounded; for hooks and indexes. */
  readonly head: Buffer;
  /** The bytes from `offset` (default 0) to the end. */
  open(offset?: number): Readable;
  /** The same bytes when the whole message is in memory; undefined when it must be read from the disk. */
  memory?(offset?: number): Buffer | undefined;
  /** Prepares `link` as far as possible without making anything visible. Idempotent; shared by all targets. */
  prepare(): Promise<void>;
  /**
   * Makes the message visible at all targets or at none. Resolves when it is visible and durable. Throws EEXIST (unless
   * the name is unique) and ENOENT as system errors, every other fault as a problem; then it is at none of them, now or
   * after a crash.
   */
  link(targets: readonly LinkTarget[]): Promise<void>;
  /**
   * Makes the message durable by a log record alone, for a caller that will most likely need no file: the file is
   * linked later, when the record is released and the message is still needed, or by the replay after a crash.
   * Undefined when the log cannot take it: then the caller has to `link`. Throws as `link` does.
   *
   * @param onLinked called when the file is linked
   * @param prefix bytes in front of the message in its file
   */
  keepInLog?(target: LinkTarget, onLinked: () => void, prefix?: Buffer): Promise<LoggedMessage | undefined>;
  /** Undoes one `link` or `keepInLog`, after a sibling failed. Resolves false when something could not be removed. */
  rollback(targets: readonly LinkTarget[]): Promise<boolean>;
  /** Receives what takes the place of this message, with the same trace. The caller releases this one afterwards. */
  replacement(): SpoolWriter | Promise<SpoolWriter>;
  /**
   * The same message, edited, as a new spooled message; this one is released. When it rejects, this one stays as it was:
   * with a `BodyError` when `body` fails, takes too long or yields too much.
   */
  rewrite(edit: MessageEdit): Promise<SpooledMessage>;
  /** Frees memory, descriptor and spool file; linked files stay. */
  release(): Promise<void>;
}

export interface HeaderEdit {
  readonly add: readonly (readonly [name: string, value: string])[];
  readonly remove: readonly string[];
}

export interface MessageEdit extends HeaderEdit {
  /** The `Return-Path:` line with its CRLF; the same if absent. */
  readonly returnPath?: Buffer;
  readonly body?: BodyEdit;
}

/** Another body, written from the one that is there. */
export interface BodyEdit {
  readonly write: (body: AsyncIterable<Buffer>) => AsyncIterable<Uint8Array | string>;
  readonly maxBytes: number;
  readonly limitMs: number;
}

/** The code that writes a new body has failed, not the disk. */
export class BodyError extends Error {}

/** Receives a message while it arrives; throws problems. After a failed `write` only `discard` is allowed. */
export interface SpoolWriter {
  /** Bytes written so far, prologue included. */
  readonly size: number;
  /** A promise when the disk is behind: waiting for it is the back-pressure on the peer. */
  write(chunk: Buffer): Promise<void> | void;
  finish(): Promise<SpooledMessage>;
  discard(): Promise<void>;
}

export interface Spool {
  /**
   * Asynchronous only when the free space of the disk has to be read.
   *
   * @param returnPath the `Return-Path:` line with its CRLF
   * @param trace the trace header fields with their CRLFs
   */
  create(returnPath: Buffer, trace: Buffer): SpoolWriter | Promise<SpoolWriter>;
}
