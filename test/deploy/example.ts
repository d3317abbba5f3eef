import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { selfSigned } from '../support/certificate.js';
import { deployFolder } from './unit-file.js';

export const exampleFolder = join(deployFolder, 'examples');
export const example = (name: string): string => readFileSync(join(exampleFolder, name), 'utf8');

/** The text with other words in the place of some; each of them must be there. */
export function changed(text: string, changes: Readonly<Record<string, string>>): string {
  return Object.entries(changes).reduce((done, [old, now]) => {
    if (!done.includes(old)) throw new Error(`there is no ${JSON.stringify(old)}`);
    return done.replaceAll(old, now);
  }, text);
}

/** Makes what the examples expect in `/etc/postern/tls`, in `tls` of the folder; returns that place. */
export async function tlsFiles(folder: string): Promise<string> {
  const place = join(folder, 'tls');
  const { key, cert } = selfSigned('mail.example.org');
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  await mkdir(place);
  await writeFile(join(place, 'key.pem'), key);
  await writeFile(join(place, 'cert.pem'), cert);
  await writeFile(join(place, 'dkim.pem'), privateKey.export({ type: 'pkcs8', format: 'pem' }));
  return place;
}

/** The example as it may run in a test: on free ports of loopback, with its places below the folder. */
export async function runnable(name: string, folder: string): Promise<string> {
  const text = example(name)
    .replace(/host: '0\.0\.0\.0'/g, "host: '127.0.0.1'")
    .replace(/port: (?:25|587|2525|8080)\b/g, 'port: 0')
    .replaceAll('/var/lib/postern', join(folder, 'data'));
  return text.includes('/etc/postern/tls') ? text.replaceAll('/etc/postern/tls', await tlsFiles(folder)) : text;
}
