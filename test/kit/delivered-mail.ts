/** A message that has arrived: a mailbox, the way to another server, or an operator's hands. */
export interface DeliveredMail {
  /** `mailbox`, `relay` for other servers, `hold` for an operator; `retry`, `bounce` for recipients that another target has not taken. */
  readonly target: 'mailbox' | 'relay' | 'hold' | 'retry' | 'bounce';
  /** The address of the mailbox, else the recipient. */
  readonly mailbox: string;
  /** Reverse-path; empty for the null one. */
  readonly from: string;
  /** Recipients of it that share this delivery. */
  readonly to: readonly string[];
  /** Header fields in their order, unfolded, with what hooks have added and without what this server adds to each message. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** The message, with CRLF line ends. */
  readonly eml: string;
  /** Why it was held. */
  readonly reason?: string;
}
