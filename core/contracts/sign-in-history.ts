import { service } from './service.js';

export const signInProtocols = ['page', 'basic', 'smtp', 'authenticate'] as const;
/** The page and HTTP Basic, SMTP AUTH, `POST /users/authenticate`. */
export type SignInProtocol = (typeof signInProtocols)[number];

export const signInResults = ['accepted', 'refused', 'deferred'] as const;
/** `deferred` was not checked: too many failures, or the server was too busy. */
export type SignInResult = (typeof signInResults)[number];

export interface SignInAttempt {
  readonly username: string;
  readonly address: string;
  readonly protocol: SignInProtocol;
  readonly result: SignInResult;
}

/** Equal attempts of one hour, with the times of the first and the last. */
export interface SignInEntry extends SignInAttempt {
  /** ISO 8601. */
  readonly first: string;
  readonly last: string;
  readonly count: number;
  /**
   * Failures with unknown names are counted by network and day, not by name: `username` is then the last name that was
   * tried. Beyond the bound of a day, they are counted for all clients together, and `address` is empty.
   */
  readonly names: 'one' | 'several';
}

export interface SignInQuery {
  /** Part of the name, in any case. */
  readonly user?: string | undefined;
  /** The whole name, in any case. */
  readonly username?: string | undefined;
  /** What the address begins with. */
  readonly address?: string | undefined;
  readonly protocol?: SignInProtocol | undefined;
  readonly result?: SignInResult | undefined;
  readonly limit: number;
  readonly cursor?: string | undefined;
}

export interface SignInPage {
  /** Newest first. */
  readonly items: readonly SignInEntry[];
  readonly limit: number;
  readonly nextCursor: string | null;
}

/** Attempts to sign in, with address and result. */
export interface SignInHistory {
  /** Never throws, and does not wait for the disk. */
  record(attempt: SignInAttempt): void;
  /** @throws Problem `bad-request` for a cursor that is none */
  find(query: SignInQuery): Promise<SignInPage>;
  /**
   * Failures with a known name are kept by name. Returns the undo.
   *
   * @param nameOf the account or user that a given name belongs to; undefined for an unknown name
   */
  addNames(protocols: readonly SignInProtocol[], nameOf: (given: string) => string | undefined): () => void;
}
export const signInHistory = service<SignInHistory>('postern.sign-in-history');
