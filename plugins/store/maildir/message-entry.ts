/** A message according to its file name, without opening it. */
export interface MessageEntry {
  readonly id: string;
  /** Path below the folder: `new/…` or `cur/…`. Changes with every flag. */
  readonly file: string;
  readonly flags: string;
  /** Bytes, from the name, else from the file. */
  readonly size: number;
  /** Milliseconds since 1970, with fractions. */
  readonly receivedAt: number;
}

/** Sort key of lists. */
export interface OrderKey {
  readonly receivedAt: number;
  readonly id: string;
}

export function isUnread(entry: { readonly flags: string }): boolean {
  return !entry.flags.includes('S');
}

/** Order of lists, newest first. Ids are compared as code units; any stable order works. */
export function compareNewestFirst(a: OrderKey, b: OrderKey): number {
  if (a.receivedAt !== b.receivedAt) return b.receivedAt - a.receivedAt;
  return a.id === b.id ? 0 : a.id < b.id ? 1 : -1;
}
