import type { PartDescription } from '../../../core/mime/content-type.js';
import type { DraftContent } from '../drafts/draft-content.js';

/** What a parse worker is asked. The file is open in this process; the worker reads the descriptor and nothing else. */
export type ParseTask = { readonly fd: number; readonly size: number } & (
  | { readonly kind: 'message' }
  | { readonly kind: 'draft' }
  | { readonly kind: 'html'; readonly remote: boolean }
  | { readonly kind: 'part'; readonly part: string }
);

/** A node of the MIME tree as pages and JSON show it. */
export interface PartView {
  readonly part: string;
  /** 0 for the message itself. */
  readonly depth: number;
  readonly contentType: string;
  readonly charset: string | null;
  readonly encoding: string;
  readonly disposition: PartDescription['disposition'] | null;
  readonly filename: string | null;
  readonly cid: string | null;
  /** Bytes when decoded. */
  readonly size: number;
  readonly attachment: boolean;
  /** It only holds other parts. */
  readonly container: boolean;
}

/** The parsed message. */
export interface MessageContent {
  /** Null when there is no such body. */
  readonly text: string | null;
  /** Sanitised, without remote content; `cid:` references are kept. */
  readonly html: string | null;
  readonly parts: readonly PartView[];
  /** Something was left out: a limit of the structure or of the length of a body was met. */
  readonly truncated: boolean;
}

export interface HtmlDocument {
  /** A whole document, safe to be shown in a sandbox; null when the message has no HTML. */
  readonly document: string | null;
  /** It refers to something on other servers that was left out. */
  readonly remoteRemoved: boolean;
}

export interface PartBytes {
  /** Decoded. Null when there is no part of that number with a body of its own. */
  readonly bytes: Uint8Array<ArrayBuffer> | null;
  readonly contentType: string;
  readonly charset: string | null;
  readonly filename: string | null;
}

export interface ParseResults {
  readonly message: MessageContent;
  readonly draft: DraftContent;
  readonly html: HtmlDocument;
  readonly part: PartBytes;
}

/** What comes back from the worker. */
export type ParseReply =
  | { readonly ok: true; readonly result: ParseResults[ParseTask['kind']] }
  | { readonly ok: false; readonly error: string };
