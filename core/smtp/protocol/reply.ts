/** An SMTP reply (RFC 5321 §4.2). Every command gets exactly one. */
export interface Reply {
  readonly code: number;
  /** Enhanced status code (RFC 2034, RFC 3463), or null where the RFCs give none: greeting, EHLO, 334, 354. */
  readonly status: string | null;
  /** One element per line of text; never empty. */
  readonly lines: readonly string[];
}

export function reply(code: number, status: string | null, ...lines: readonly string[]): Reply {
  return { code, status, lines };
}
