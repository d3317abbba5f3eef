import { service } from './service.js';

/** A message that passed through this server, or was refused. */
export interface TracedMessage {
  /** Id of the transaction; null for a refusal before there was one. */
  readonly id: string | null;
  readonly session: string;
  readonly messageId: string | null;
  /** Empty for the null reverse-path. */
  readonly sender: string;
  readonly recipients: readonly string[];
  /** ISO 8601. */
  readonly at: string;
  /** The last state of each recipient in one word; `rejected` for a refusal. */
  readonly states: readonly string[];
}

/** Delivery history of messages. Provided by the `trace` plugin. */
export interface Traces {
  /** Messages from or to an address, or with an id or Message-ID, newest first. */
  find(text: string, options: { readonly limit: number }): Promise<readonly TracedMessage[]>;
}

export const traces = service<Traces>('postern.traces');
