import { createPrivateKey, type KeyObject } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Readable } from 'node:stream';
import { parseAddressList } from '../../../core/mime/address-list.js';
import { scanHeader } from '../../../core/mime/header.js';
import { problem } from '../../../core/problem.js';
import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import type { ClientQueueSettings } from '../options.js';
import { dkimFields, type SigningKey } from './dkim-signature.js';

/**
 * The author's domain, which receivers compare (RFC 7489 §3.1), else that of the envelope. None when the header is too long
 * to see all authors, or when a client that did not sign in names an author of a domain with a key.
 *
 * @param head the start of a message of `size` bytes
 */
export function signingDomain(
  head: Buffer,
  { size, sender, stranger }: Pick<NewEntry, 'size' | 'sender' | 'stranger'>,
  signer: DkimSigner,
): string | undefined {
  const header = scanHeader(head);
  if (!header.isWhole(size)) return undefined;
  const authors = header.all('from').flatMap((from) => parseAddressList(from).map(({ address }) => domainOf(address)));
  if (stranger === true && authors.some((domain) => signer.signs(domain))) return undefined;
  return [...authors, domainOf(sender ?? '')].find((domain) => domain !== '' && signer.signs(domain));
}

const domainOf = (address: string): string => address.slice(address.lastIndexOf('@') + 1).toLowerCase();

/** Fields that are signed if present; those that relays add or change are not. */
const signedFields = new Set([
  'from',
  'sender',
  'reply-to',
  'subject',
  'date',
  'message-id',
  'to',
  'cc',
  'mime-version',
  'content-type',
  'content-transfer-encoding',
  'in-reply-to',
  'references',
  'auto-submitted',
  'list-id',
  'list-unsubscribe',
  'list-unsubscribe-post',
]);

/**
 * Signs mail of the domains that have keys (RFC 6376), each time it is sent, once with each key: verifiers that do not know
 * Ed25519 take the RSA signature (RFC 8463 §3). A key of a parent domain does not count. Not signed: what goes to targets of this server (mailboxes, LMTP, proxy), and what `/client/send` sends.
 */
export class DkimSigner {
  readonly #keys: ReadonlyMap<string, readonly SigningKey[]>;

  /**
   * @param keys by domain
   * @param folder what relative paths are relative to
   * @throws Problem `invalid` for a file that cannot be read or holds no private key
   */
  constructor(keys: ClientQueueSettings['dkim'], folder: string) {
    this.#keys = new Map(
      Object.entries(keys).map(([domain, ofDomain]) => [
        domain.toLowerCase(),
        [ofDomain].flat().map(({ selector, key }) => ({ selector, key: readKey(domain, resolve(folder, key)) })),
      ]),
    );
  }

  /** Whether mail of any domain is signed. */
  get active(): boolean {
    return this.#keys.size > 0;
  }

  /** Whether mail from that domain is signed. */
  signs(domain: string): boolean {
    return this.#keys.has(domain.toLowerCase());
  }

  /** The header fields to prepend, with their line ends. */
  async signature(domain: string, message: Buffer | Readable, now: Date): Promise<Buffer> {
    const keys = this.#keys.get(domain.toLowerCase());
    if (keys === undefined) throw new Error(`there is no key for ${domain}`);
    return dkimFields(message, { domain, keys, fields: signedFields, now });
  }
}

function readKey(domain: string, path: string): KeyObject {
  const invalid = (why: string, cause?: unknown) =>
    problem('invalid', { detail: `plugins.client-queue.dkim: the key of ${domain}, ${path}, ${why}.`, cause });
  let pem: string;
  try {
    pem = readFileSync(path, 'utf8');
  } catch (error) {
    throw invalid('cannot be read', error);
  }
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType === 'rsa' || key.asymmetricKeyType === 'ed25519') return key;
  } catch (error) {
    throw invalid('is no private key in PEM', error);
  }
  throw invalid('is neither of RSA nor of Ed25519');
}
