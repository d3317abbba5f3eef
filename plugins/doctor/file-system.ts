import type { Finding } from '../../core/contracts/doctor-check.js';
import { advice, fine } from '../../core/contracts/doctor-check.js';

/** By the magic number of statfs(2), what speaks against having mail there, and what to do. */
const kinds: Readonly<Record<number, readonly [name: string, warning?: string, todo?: string]>> = {
  0x6969: ['NFS', 'where fsync, locks and links may promise more than they keep', 'Prefer a local disk.'],
  0xff534d42: ['CIFS', 'where fsync and links may promise more than they keep', 'Prefer a local disk.'],
  0xfe534d42: ['SMB', 'where fsync and links may promise more than they keep', 'Prefer a local disk.'],
  0x65735546: ['FUSE', 'where fsync does what its program makes of it', 'Prefer a local disk.'],
  0x1021997: ['9p', 'where fsync does what the host makes of it', 'Prefer a local disk.'],
  0x1021994: ['tmpfs', 'which is memory: mail is gone with the next boot', 'Put the data folder on a disk.'],
  0x858458f6: ['ramfs', 'which is memory: mail is gone with the next boot', 'Put the data folder on a disk.'],
  0x794c7630: ['overlay', 'which goes with its container', 'Put the data folder on a volume.'],
  0xef53: ['ext4'],
  0x58465342: ['XFS'],
  0x9123683e: ['Btrfs'],
  0x2fc12fc1: ['ZFS'],
  0xf2f52010: ['F2FS'],
};

/** @param type of statfs(2) */
export function fileSystemFinding(data: string, type: number): Finding {
  const [name, warning, todo] = kinds[type] ?? [`a file system of type 0x${type.toString(16)}`];
  if (warning === undefined || todo === undefined) return fine(`The data folder ${data} is on ${name}.`);
  return advice(`The data folder ${data} is on ${name}, ${warning}.`, todo);
}
