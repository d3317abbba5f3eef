/**
 * Names of the delivery targets by which plugins and the pipeline refer to each other: hooks route to them, and the
 * pipeline falls back to them. Site plugins may provide others.
 */
export const targets = {
  /** Mailboxes of this server. */
  mailbox: 'mailbox',
  /** Sends to other servers, with attempts until it expires. */
  relay: 'relay',
  /** Keeps mail for another target of this server, and delivers it there with attempts: `route(hop, { queued: true })`. */
  queue: 'queue',
  /** Takes recipients that another target has deferred, to try them again. */
  retry: 'retry',
  /** Takes recipients that another target has refused after the message was accepted, to tell its sender. */
  bounce: 'bounce',
  /** Keeps mail until an operator decides. */
  hold: 'hold',
} as const;
