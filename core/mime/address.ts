/**
 * The strict addresses of envelopes, sign-ins, the directory and the store: one parser for all of them. What is shown of
 * header fields, which may hold anything, is the matter of address-list.ts.
 */
export { parseDomain, type Domain } from './domain.js';
export type { LocalPart } from './local-part.js';
export { makeAddress, parseAddress, type Address } from './mailbox.js';
export { parsePath, parsePathArgument, type PathArgument } from './path.js';
