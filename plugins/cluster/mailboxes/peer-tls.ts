import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { isPem, readPair } from '../../../core/net/tls-material.js';
import { startError } from '../../../core/problem.js';
import type { PeerSettings } from '../options.js';

/** What a node shows to the others, and by what it knows them. */
export interface PeerTls {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** @throws start error */
export function readPeerTls({ tls }: PeerSettings, folder: string): PeerTls {
  const { key, cert } = readPair(tls, 'plugins.cluster.peers.tls', folder);
  const path = resolve(folder, tls.ca);
  try {
    const ca = isPem(tls.ca) ? tls.ca : readFileSync(path, 'utf8');
    if (isPem(ca)) return { ca, cert, key };
  } catch (cause) {
    throw startError(`plugins.cluster.peers.tls: the file ${path} cannot be read.`, cause);
  }
  throw startError(`plugins.cluster.peers.tls: the file ${path} is not a PEM file.`);
}
