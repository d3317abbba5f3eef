import type { DisplayAddress } from '../mime/address-list.js';
import { service } from './service.js';

export interface FoundMessage {
  /** `local@domain`. */
  readonly mailbox: string;
  readonly folder: string;
  readonly id: string;
  /** Path of its page. */
  readonly href: string;
  readonly subject: string;
  /** Where the words occur in the subject, in UTF-16 units, in order and without overlaps. */
  readonly marks: readonly (readonly [start: number, end: number])[];
  readonly from: DisplayAddress | null;
  /** ISO 8601. */
  readonly receivedAt: string;
}

export interface FoundMail {
  /** Newest first. */
  readonly items: readonly FoundMessage[];
  /** Matches found so far. */
  readonly total: number;
  /** Mailboxes that the account may read. */
  readonly mailboxes: number;
  /** Those of them that were searched completely. */
  readonly searched: number;
}

export interface MailSearchRequest {
  /** Words that must all occur in subject, sender, recipients, Message-ID or the first words; ignores case. */
  readonly q: string;
  readonly limit: number;
  /** Milliseconds, after which the answer holds what was found until then; reading continues in the background. */
  readonly timeoutMs: number;
  /** Whether the account may open a page of that path: other messages are neither searched nor counted. */
  readonly mayOpen: (path: string) => boolean;
}

/** Search in all mailboxes. Provided by the `store` plugin. */
export interface MailSearch {
  /** This server, where others have mailboxes that are not searched; undefined when it has all. */
  readonly node?: string | undefined;
  /** @throws Problem `unavailable` while too many searches are running */
  search(request: MailSearchRequest): Promise<FoundMail>;
}

export const mailSearch = service<MailSearch>('postern.mail-search');
