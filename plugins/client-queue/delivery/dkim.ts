import { createPrivateKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Readable } from 'node:stream';
import { parseAddressList } from '../../../core/mime/address-list.js';
import { scanHeader } from '../../../core/mime/header.js';
import { problem } from '../../../core/problem.js';
import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import type { ClientQueueSettings } from '../options.js';

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

interface Key {
  readonly selector: string;
  readonly pem: string;
}

/** Fields that are signed if present; those that relays add or change are not. */
const signedFields = [
  'From',
  'Sender',
  'Reply-To',
  'Subject',
  'Date',
  'Message-ID',
  'To',
  'Cc',
  'MIME-Version',
  'Content-Type',
  'Content-Transfer-Encoding',
  'In-Reply-To',
  'References',
  'Auto-Submitted',
  'List-Id',
  'List-Unsubscribe',
  'List-Unsubscribe-Post',
];

/**
 * Signs mail of the domains that have keys (RFC 6376), each time it is sent, once with each key: verifiers that do not know
 * Ed25519 take the RSA signature (RFC 8463 §3). A key of a parent domain does not count. Not signed: what goes to targets of this server (mailboxes, LMTP, proxy), and what `/client/send` sends.
 */
export class DkimSigner {
  readonly #keys: ReadonlyMap<string, readonly Key[]>;

  /**
   * @param keys by domain
   * @param folder what relative paths are relative to
   * @throws Problem `invalid` for a file that cannot be read or holds no private key
   */
  constructor(keys: ClientQueueSettings['dkim'], folder: string) {
    this.#keys = new Map(
      Object.entries(keys).map(([domain, ofDomain]) => [
        domain.toLowerCase(),
        [ofDomain].flat().map(({ selector, key }) => ({ selector, pem: readKey(domain, resolve(folder, key)) })),
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
    const [first] = keys ?? [];
    if (keys === undefined || first === undefined) throw new Error(`there is no key for ${domain}`);
    // Loaded on first use: only signing needs it.
    const { dkimSign } = await import('mailauth/lib/dkim/sign.js');
    const { signatures, errors } = await dkimSign(message, {
      canonicalization: 'relaxed/relaxed',
      signTime: now,
      headerList: signedFields,
      // The next three are required by the types and not read.
      signingDomain: domain,
      selector: first.selector,
      privateKey: first.pem,
      signatureData: keys.map(({ selector, pem }) => ({ signingDomain: domain, selector, privateKey: pem })),
    });
    const [failure] = errors;
    if (failure !== undefined) throw new Error(`mail of ${domain} could not be signed`, { cause: failure });
    return Buffer.from(signatures);
  }
}

function readKey(domain: string, path: string): string {
  const invalid = (why: string, cause?: unknown) =>
    problem('invalid', { detail: `plugins.client-queue.dkim: the key of ${domain}, ${path}, ${why}.`, cause });
  let pem: string;
  try {
    pem = readFileSync(path, 'utf8');
  } catch (error) {
    throw invalid('cannot be read', error);
  }
  try {
    const { asymmetricKeyType: type } = createPrivateKey(pem);
    if (type === 'rsa' || type === 'ed25519') return pem;
  } catch (error) {
    throw invalid('is no private key in PEM', error);
  }
  throw invalid('is neither of RSA nor of Ed25519');
}
