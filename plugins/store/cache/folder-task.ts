import type { MessageEntry } from '../maildir/message-entry.js';
import type { CacheSite } from './cached-folder.js';
import type { RowFilter } from './row-search.js';
import type { SummaryRecord } from './summary-record.js';

/** Questions to the thread about one folder. */
export type FolderQuestion =
  | { readonly kind: 'totals' }
  | { readonly kind: 'page'; readonly request: PageQuestion }
  | { readonly kind: 'select'; readonly filter: MessageQuestion }
  | { readonly kind: 'locate'; readonly ids: readonly string[]; readonly trust: Trust }
  | { readonly kind: 'entries'; readonly containing: string }
  | { readonly kind: 'summaries'; readonly ids: readonly string[] };

/**
 * Required freshness of an answer: the last known state, of any age; a check of the folder; or a read of all names
 * regardless of the check.
 */
export type Trust = 'known' | 'looked' | 'read';

export interface MessageQuestion extends RowFilter {
  readonly q?: string | undefined;
}

export interface PageQuestion extends MessageQuestion {
  readonly order: 'newest' | 'oldest';
  readonly limit: number;
  readonly cursor?: string | undefined;
  /** Time limit in milliseconds for reading messages during a search. */
  readonly timeoutMs: number;
}

export interface FolderTask {
  readonly site: CacheSite & { readonly memoryBytes: number; readonly diskBytes: number };
  /** Absolute path of the folder. */
  readonly folder: string;
  /** Milliseconds since 1970, not later than now. */
  readonly now: number;
  readonly question: FolderQuestion;
}

export interface FolderTotals {
  readonly total: number;
  readonly unread: number;
  /** Bytes of all messages. */
  readonly size: number;
  /** Received times; null for an empty folder. */
  readonly oldest: number | null;
  readonly newest: number | null;
}

export interface SummarisedEntry extends SummaryRecord {
  readonly entry: MessageEntry;
}

export interface FolderSheet {
  readonly items: readonly SummarisedEntry[];
  /** After filters. */
  readonly total: number;
  readonly nextCursor: string | null;
  readonly prevCursor: string | null;
  readonly searchedAll: boolean;
  readonly totals: FolderTotals;
}

export interface Selected {
  /** Unique names, each followed by a slash, in UTF-8: hundreds of thousands of strings are slow to transfer. */
  readonly ids: readonly Uint8Array<ArrayBuffer>[];
  readonly count: number;
  readonly unread: number;
  readonly searchedAll: boolean;
}

export interface LocatedRows {
  /** In the order of the ids. */
  readonly entries: readonly (MessageEntry | null)[];
  /** The folder was not changing: a missing message does not exist. */
  readonly quiet: boolean;
}

export interface FolderAnswers {
  readonly totals: FolderTotals;
  readonly page: FolderSheet;
  readonly select: Selected;
  readonly locate: LocatedRows;
  readonly entries: readonly MessageEntry[];
  readonly summaries: readonly SummarisedEntry[];
}

/** A search in many folders. */
export interface FoldersQuestion {
  /** Absolute paths. */
  readonly folders: readonly string[];
  /** Words that must all occur. */
  readonly q: string;
  /** Maximum number of items. */
  readonly limit: number;
  /** Time limit in milliseconds. */
  readonly timeoutMs: number;
}

export interface FoldersTask extends Omit<FolderTask, 'folder' | 'question'> {
  readonly search: FoldersQuestion;
}

export interface FoundInFolder extends SummarisedEntry {
  /** Index of the folder in the question. */
  readonly folder: number;
}

export interface FoundInFolders {
  /** Newest first. */
  readonly items: readonly FoundInFolder[];
  /** Matches found so far. */
  readonly total: number;
  /** Indexes of the folders with messages that were not searched. */
  readonly unfinished: readonly number[];
}

/** Null when there is no such folder. */
export type FolderReply =
  | { readonly ok: true; readonly answer: FolderAnswers[FolderQuestion['kind']] | FoundInFolders | null }
  | { readonly ok: false; readonly error: string };
