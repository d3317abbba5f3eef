import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { problem } from '../../../core/problem.js';
import { decodeModifiedUtf7, encodeModifiedUtf7 } from '../maildir/modified-utf7.js';

/** A parsed Maildir++ folder name that is safe in a path. Only functions of this file create it. */
export interface FolderName {
  readonly postern: 'folder-name';
  /** Display name: Unicode in NFC, levels joined by `.`, `INBOX` for the mailbox itself. */
  readonly name: string;
  /** On disk below the mailbox: `.Projects.2026`, in modified UTF-7; empty for INBOX. */
  readonly directory: string;
}

export const inbox: FolderName = Object.freeze({ postern: 'folder-name', name: 'INBOX', directory: '' });

/** NAME_MAX of common file systems, in bytes. */
const maxDirectoryBytes = 255;
/** Controls, invisible and bidirectional characters, and unpaired surrogates. */
const refused = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029/\\]/u;

/**
 * Parses a folder name from a URL or body. A leading dot is accepted, `INBOX` in any case.
 * @throws Problem `bad-request`
 */
export function parseFolderName(text: string): FolderName {
  const name = text.startsWith('.') ? text.slice(1) : text;
  if (name.toUpperCase() === 'INBOX') return inbox;
  const fault = faultOf(name);
  if (fault !== undefined) throw problem('bad-request', { detail: `That is no folder name: ${fault}.` });
  const directory = `.${encodeModifiedUtf7(name)}`;
  if (Buffer.byteLength(directory) > maxDirectoryBytes) {
    throw problem('bad-request', { detail: 'That is no folder name: it is too long.' });
  }
  return { postern: 'folder-name', name, directory };
}

function faultOf(name: string): string | undefined {
  if (name === '') return 'it is empty';
  if (refused.test(name)) return 'it holds a character that no name may hold';
  if (name.normalize('NFC') !== name) return 'it is not in Unicode normalization form C';
  const levels = name.split('.');
  if (levels.some((level) => level.trim() === '')) return 'a level is empty';
  if (levels.some((level) => level.trim() !== level)) return 'a level begins or ends with a blank';
  if (levels.some((level) => level.startsWith('~'))) return 'a level begins with ~';
  return levels[0]?.toUpperCase() === 'INBOX' ? 'INBOX has no folders below it' : undefined;
}

/**
 * The folder of a mailbox directory, or undefined for others (`tmp`, names that begin with `..`, control files). Other
 * programs write names that this server would not: those are shown in NFC, read as UTF-8 if they are not modified
 * UTF-7.
 */
export function folderOfDirectory(directory: string): FolderName | undefined {
  if (!directory.startsWith('.') || directory.startsWith('..') || directory.length < 2) return undefined;
  const written = directory.slice(1);
  const name = (decodeModifiedUtf7(written) ?? written).normalize('NFC');
  if (name.split('.').some((level) => level === '') || name.toUpperCase() === 'INBOX') return undefined;
  return { postern: 'folder-name', name, directory };
}

/** Name of the folder above, or null on the first level. */
export function parentOf(folder: FolderName): string | null {
  const dot = folder.name.lastIndexOf('.');
  return dot < 0 ? null : folder.name.slice(0, dot);
}

export type SpecialUse = 'inbox' | 'sent' | 'drafts' | 'trash' | 'junk' | 'archive';

const specials: Readonly<Record<string, SpecialUse>> = {
  inbox: 'inbox',
  sent: 'sent',
  drafts: 'drafts',
  trash: 'trash',
  junk: 'junk',
  archive: 'archive',
};

/** Canonical names of special folders; each is created on first use. */
export const specialNames = ['Sent', 'Drafts', 'Trash', 'Junk', 'Archive'] as const;

/** Last level of the name. */
export function levelOf(folder: FolderName): string {
  return folder.name.slice(folder.name.lastIndexOf('.') + 1);
}

export function isBelow(folder: FolderName, top: FolderName): boolean {
  return folder.name.startsWith(`${top.name}.`);
}

/** Names that fold to the same text may not coexist: some file systems, and most people, cannot distinguish them. */
export function foldedName(name: string): string {
  return name.normalize('NFC').toUpperCase().toLowerCase().normalize('NFC');
}

/** Names that other programs use in a mailbox, with or without a leading dot. */
const reservedLevel = /^(?:new|cur|tmp|inbox|dovecot(?:[-.].*)?|maildirfolder|maildirsize|subscriptions)$/i;

/**
 * Validates the name of a new folder: one level, below `parent` or at the top. As in Maildir++, the children of INBOX
 * are the top level.
 * @param pointer the request field to report in errors
 * @throws Problem `invalid`
 */
export function folderBelow(parent: FolderName | null, level: string, pointer = '/name'): FolderName {
  const fault = level.includes('.') ? 'it may not hold a dot, which separates levels' : faultOfLevel(level);
  if (fault !== undefined) throw invalidName(fault, pointer);
  return named(parent === null || parent.directory === '' ? level : `${parent.name}.${level}`, pointer);
}

function faultOfLevel(level: string): string | undefined {
  return reservedLevel.test(level) ? 'it is reserved' : faultOf(level);
}

/**
 * The new name of a folder when `from`, the folder itself or one above it, is renamed to `to`. @throws Problem
 * `invalid`
 */
export function rebased(folder: FolderName, from: FolderName, to: FolderName): FolderName {
  return folder.name === from.name ? to : named(to.name + folder.name.slice(from.name.length));
}

function named(name: string, pointer?: string): FolderName {
  const directory = `.${encodeModifiedUtf7(name)}`;
  if (Buffer.byteLength(directory) > maxDirectoryBytes) throw invalidName('it is too long', pointer);
  return { postern: 'folder-name', name, directory };
}

function invalidName(fault: string, pointer?: string) {
  const detail = `That cannot be the name of a folder: ${fault}.`;
  if (pointer === undefined) return problem('invalid', detail);
  return problem('invalid', { detail, errors: [{ pointer, message: `must be a folder name, and ${fault}` }] });
}

/** Special use of a folder (RFC 6154), by its top-level name. */
export function specialUseOf(folder: FolderName): SpecialUse | null {
  return Object.hasOwn(specials, folder.name.toLowerCase()) ? (specials[folder.name.toLowerCase()] ?? null) : null;
}

/** A folder that existed when it was looked up. */
export interface MailboxFolder {
  readonly mailbox: MailboxName;
  readonly name: FolderName;
  /** Absolute. */
  readonly path: string;
}
