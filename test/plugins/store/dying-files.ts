import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';

/** Calls that leave the disk as it is, and closing: a dead process has nothing open. */
const harmless = new Set(['read', 'fsync', 'fdatasync', 'lstat', 'readdir', 'statfs']);

/** The real file layer until so many calls that change something were made; then nothing works any more, as after a kill. */
export function dyingFiles(changes: number): { readonly files: FileLayer; readonly died: () => boolean } {
  let left = changes;
  const isDead = (name: string, args: readonly unknown[]): boolean => {
    if (name === 'close') return false;
    if (left >= 0 && !harmless.has(name) && !(name === 'open' && args[1] === 'r')) left -= 1;
    return left < 0;
  };
  const files = new Proxy(nodeFiles, {
    get(target, name: keyof FileLayer) {
      const call = target[name] as (...args: readonly unknown[]) => unknown;
      return (...args: readonly unknown[]): unknown => {
        if (!isDead(name, args)) return call(...args);
        const error = new Error('the process is dead');
        if (name.endsWith('Now')) throw error;
        return Promise.reject(error);
      };
    },
  });
  return { files, died: () => left < 0 };
}
