import { createPublicKey, generateKeyPair } from 'node:crypto';
import { chmod, mkdir, readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import type { LoadedConfiguration } from '../../core/config/load.js';
import { faultCode } from '../../core/disk/fault.js';
import { type DkimPublication, dkimText } from '../../core/dns/mail-zone.js';
import { startError } from '../../core/problem.js';
import { giveToFolderOwner, writeNew } from './first-files.js';

/** A key that the configuration names. */
export interface ConfiguredKey extends DkimPublication {
  readonly domain: string;
  /** Absolute path of the private key. */
  readonly file: string;
  readonly algorithm: 'rsa' | 'ed25519';
  /** Of RSA keys. */
  readonly bits: number | null;
}

const KeyOptions = z.object({ selector: z.string(), key: z.string() });
const QueueOptions = z.object({ dkim: z.record(z.string(), z.union([KeyOptions, z.array(KeyOptions)])) });

/**
 * Every key that signs mail, by the options of the relay queue.
 *
 * @throws start error for a file that cannot be read or holds no private key
 */
export async function configuredKeys({ options, folder }: LoadedConfiguration): Promise<readonly ConfiguredKey[]> {
  const { dkim } = QueueOptions.safeParse(options.get('client-queue')).data ?? { dkim: {} };
  const named = Object.entries(dkim).flatMap(([domain, keys]) =>
    [keys].flat().map(({ selector, key }) => ({ domain: domain.toLowerCase(), selector, file: resolve(folder, key) })),
  );
  return Promise.all(named.map(async (key) => ({ ...key, ...(await publicationOf(key.selector, key.file)) })));
}

/**
 * What is to be published of the private key in a file.
 *
 * @throws start error when it cannot be read or holds no private key
 */
export async function publicationOf(selector: string, file: string) {
  let pem: string;
  try {
    pem = await readFile(file, 'utf8');
  } catch (cause) {
    throw startError(`The DKIM key ${file} cannot be read: ${faultCode(cause) ?? 'error'}.`, cause);
  }
  try {
    const { asymmetricKeyType, asymmetricKeyDetails } = createPublicKey(pem);
    const algorithm: ConfiguredKey['algorithm'] = asymmetricKeyType === 'ed25519' ? 'ed25519' : 'rsa';
    return { selector, text: dkimText(pem), algorithm, bits: asymmetricKeyDetails?.modulusLength ?? null };
  } catch (cause) {
    throw startError(`The DKIM key ${file} is no private key in PEM.`, cause);
  }
}

/** A file of a key, as the configuration names it. */
export interface NewKey {
  readonly selector: string;
  /** Relative to the configuration file. */
  readonly key: string;
  /** False when the file was there already. */
  readonly written: boolean;
}

const generate = promisify(generateKeyPair);
const kinds = [
  { name: 'rsa', make: () => generate('rsa', { modulusLength: 2048 }) },
  { name: 'ed', make: () => generate('ed25519') },
] as const;

/**
 * Makes an RSA and an Ed25519 key (RFC 8463 §3), mode 0600, in the folder `dkim` below `folder`. Overwrites nothing.
 *
 * @param round part of the selectors: `rsa1` and `ed1`
 */
export async function makeKeys(folder: string, domain: string, round: number): Promise<readonly NewKey[]> {
  const keys = join(folder, 'dkim');
  if ((await mkdir(keys, { recursive: true })) !== undefined) await giveToFolderOwner(keys);
  await chmod(keys, 0o700);
  return Promise.all(
    kinds.map(async ({ name, make }) => {
      const selector = `${name}${round}`;
      const key = join('dkim', `${domain}.${selector}.pem`);
      const text = async () => (await make()).privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
      return { selector, key, written: await writeNew(join(folder, key), text, 0o600) };
    }),
  );
}
