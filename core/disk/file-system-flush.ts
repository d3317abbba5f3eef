import { execFile } from 'node:child_process';

/** Brings everything that a file system holds in memory to its disk. */
export interface FileSystemFlush {
  /** False when this machine cannot; then each file must be fsynced. Rejects when the disk reports a fault. */
  flush(folder: string): Promise<boolean>;
}

/** The shell's words for a program that is not there or cannot be run, and what `sync` says to an option it does not know. */
const unknownOption = /unrecognized|invalid option|unknown option|usage/i;

/** By `sync -f` of the coreutils, for Node has no syncfs(2). Elsewhere `sync` knows no -f, or only begins to write. */
export const coreutilsFlush: FileSystemFlush = {
  flush: (folder) =>
    new Promise((resolve, reject) => {
      if (process.platform !== 'linux') {
        resolve(false);
        return;
      }
      execFile('sync', ['-f', folder], (error, _, stderr) => {
        if (error === null) resolve(true);
        else if (typeof error.code === 'string' || unknownOption.test(stderr)) resolve(false);
        else reject(new Error('the file system could not be brought to the disk', { cause: error }));
      });
    }),
};
