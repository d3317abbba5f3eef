/** Placeholder of the strict address module; the SMTP path, HTTP interface, users and store share it. */
export type Domain = string & { readonly brand: 'Domain' };
/** A local part in its decoded form (no quoting); case as received. */
export type LocalPart = string & { readonly brand: 'LocalPart' };

/** A mailbox as RFC 5321 §4.1.2 knows it. `address` is its canonical spelling, ready for an envelope. */
export interface Address {
  readonly local: LocalPart;
  /** ASCII lower case A-labels, or an address literal in brackets. */
  readonly domain: Domain;
  readonly address: string;
  /** True when the address needs SMTPUTF8 (RFC 6531). */
  readonly international: boolean;
}
