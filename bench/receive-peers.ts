import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startHaraka } from './haraka.js';
import { startPeer, type Peer } from './peer.js';
import { startPostfix } from './postfix.js';
import { selfSigned } from '../test/kit/certificate.js';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

type Start = (folder: string) => Promise<Peer | undefined>;

const starts: Readonly<Record<string, Start>> = {
  'postern file': (folder) => startPostern(folder, 'file'),
  'postern log': (folder) => startPostern(folder, 'log'),
  bare: (folder) => startPeer('bare', here('./bare-server.js'), [folder, ...pairIn(folder)], join(folder, 'new')),
  haraka: (folder) => startHaraka(folder, pairIn(folder)),
  postfix: (folder) => startPostfix(folder, pairIn(folder)),
};

const pair = selfSigned();

/** Paths of key and certificate, the same for all peers. */
function pairIn(folder: string): readonly [key: string, cert: string] {
  const paths = [join(folder, 'key.pem'), join(folder, 'cert.pem')] as const;
  writeFileSync(paths[0], pair.key, { mode: 0o600 });
  writeFileSync(paths[1], pair.cert);
  return paths;
}

/** Starts each of them that this machine has, in folders of their own, made when missing; says what is missing. */
export async function* startPeers(folder: string, wanted?: readonly string[]): AsyncGenerator<Peer> {
  for (const [name, start] of Object.entries(starts)) {
    if (wanted !== undefined && !wanted.includes(name)) continue;
    const own = join(folder, name.replace(' ', '-'));
    mkdirSync(own, { recursive: true });
    const peer = await start(own);
    if (peer !== undefined) yield peer;
  }
}

function startPostern(folder: string, durability: string): Promise<Peer> {
  const config = join(folder, 'postern.json5');
  const [key, cert] = pairIn(folder);
  writeFileSync(
    config,
    JSON.stringify({ durability, smtp: { listeners: [{ mode: 'mx', port: 0, tls: 'starttls', key, cert }] } }),
  );
  const inbox = join(folder, 'data', 'mail', 'localhost', 'postmaster', 'new');
  const args = ['start', '--config', config, '--http-port', '0', '--smtp-port', '0'];
  return startPeer(`postern ${durability}`, here('../core/postern.cjs'), args, inbox);
}
