import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { type Address, type Domain, type LocalPart, quoteLocalPart } from '../../../core/mime/address.js';
import { problem } from '../../../core/problem.js';

/** Labels of letters, digits and inner hyphens (RFC 5890 §2.3.1); at most 253 bytes. */
const domainPattern = /^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/;
/** Local parts that are used unchanged as folder names. */
const plainLocal = /^(?!\.)(?!.*\.\.)[A-Za-z0-9._+=-]{1,64}(?<!\.)$/;
/** Characters that are not escaped; others become `%` and two hex digits for each byte of their UTF-8. */
const plainByte = /[A-Za-z0-9._+=-]/;
const maxFolderNameBytes = 255;

/** Path parameters, decoded once. */
export interface MailboxParameters {
  readonly domain: string;
  readonly user: string;
}

/**
 * Validates the mailbox in a request: the domain in ASCII, in any case; the user `[A-Za-z0-9._+=-]{1,64}` without
 * leading, trailing or double dots. Throws `bad-request`. Users with other characters are found through the directory:
 * `mailboxNameOf(user.address)`.
 */
export function parseMailboxName({ domain, user }: MailboxParameters): MailboxName {
  const name = domain.toLowerCase();
  if (!isDomain(name)) throw problem('bad-request', 'The domain must be a host name in ASCII.');
  if (!isPlainLocal(user)) {
    throw problem('bad-request', 'The user must be 1 to 64 letters, digits or . _ + = -, with no dot at an end.');
  }
  return { postern: 'mailbox-name', domain: name, user };
}

/** The mailbox of a parsed address. Throws `invalid` for an address literal, which has no mailbox. */
export function mailboxNameOf(address: Pick<Address, 'local' | 'domain'>): MailboxName {
  const { local, domain } = address;
  if (!isDomain(domain)) throw problem('invalid', 'An address literal has no mailbox.');
  if (local === '' || /\p{Surrogate}/u.test(local) || folderOfLocal(local).length > maxFolderNameBytes) {
    throw problem('invalid', 'This local part cannot have a mailbox.');
  }
  return { postern: 'mailbox-name', domain, user: local };
}

/** Absolute folder of the mailbox: `<root>/<domain>/<user>`. Always inside the root, for any local part. */
export function mailboxFolder(root: string, name: MailboxName): string {
  return `${root}/${name.domain}/${folderOfLocal(name.user)}`;
}

/** The local part as a folder name: reversible, one component, never `.` or `..`, never hidden. */
export function folderOfLocal(local: LocalPart): string {
  if (isPlainLocal(local)) return local;
  let folder = '';
  for (const byte of Buffer.from(local)) {
    const character = String.fromCharCode(byte);
    const plain = byte < 0x80 && plainByte.test(character) && !(character === '.' && folder === '');
    folder += plain ? character : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return folder;
}

/** The local part of a folder below a domain; undefined for a name that this server would not create. */
export function localOfFolder(folder: string): LocalPart | undefined {
  if (isPlainLocal(folder)) return folder;
  let local: string;
  try {
    local = decodeURIComponent(folder);
  } catch {
    return undefined;
  }
  const candidate = local as LocalPart;
  return candidate !== '' && folderOfLocal(candidate) === folder ? candidate : undefined;
}

/** True for the name of a domain folder. */
export function isDomain(text: string): text is Domain {
  return domainPattern.test(text);
}

function isPlainLocal(text: string): text is LocalPart {
  return plainLocal.test(text);
}

/** The mailbox of a user name, `local@domain` as in the directory: the local part may be quoted. */
export function mailboxNameOfUser(username: string): MailboxName {
  const at = username.lastIndexOf('@');
  if (at < 1) throw problem('invalid', 'A mailbox is named user@domain.');
  const local = username.slice(0, at);
  const decoded = local.startsWith('"') ? local.slice(1, -1).replace(/\\(.)/g, '$1') : local;
  return mailboxNameOf({ local: decoded as LocalPart, domain: username.slice(at + 1) as Domain });
}

/** Name of the user who owns the mailbox. */
export function usernameOf({ user, domain }: MailboxName): string {
  return `${quoteLocalPart(user)}@${domain}`;
}
