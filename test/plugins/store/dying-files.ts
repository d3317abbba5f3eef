import type { Stats, StatsFs } from 'node:fs';
import { nodeFiles, type FileLayer } from '../../../core/disk/file-layer.js';

/** The real file layer until so many calls that change something were made; then nothing works any more, as after a kill. */
export class DyingFiles implements FileLayer {
  #left: number;

  constructor(changes: number) {
    this.#left = changes;
  }

  get died(): boolean {
    return this.#left < 0;
  }

  #live(): void {
    if (this.#left < 0) throw new Error('the process is dead');
  }

  #change(): void {
    this.#live();
    this.#left -= 1;
    this.#live();
  }

  async open(path: string, flags: string | number, mode?: number): Promise<number> {
    if (flags === 'r') this.#live();
    else this.#change();
    return nodeFiles.open(path, flags, mode);
  }

  async read(fd: number, buffer: Buffer, position: number | null): Promise<number> {
    this.#live();
    return nodeFiles.read(fd, buffer, position);
  }

  async write(fd: number, buffers: readonly Buffer[]): Promise<number> {
    this.#change();
    return nodeFiles.write(fd, buffers);
  }

  async fsync(fd: number): Promise<void> {
    this.#live();
    return nodeFiles.fsync(fd);
  }

  async fdatasync(fd: number): Promise<void> {
    this.#live();
    return nodeFiles.fdatasync(fd);
  }

  /** A dead process has none open. */
  async close(fd: number): Promise<void> {
    return nodeFiles.close(fd);
  }

  async link(existing: string, path: string): Promise<void> {
    this.#change();
    return nodeFiles.link(existing, path);
  }

  async rename(from: string, to: string): Promise<void> {
    this.#change();
    return nodeFiles.rename(from, to);
  }

  async unlink(path: string): Promise<void> {
    this.#change();
    return nodeFiles.unlink(path);
  }

  async mkdir(path: string, mode: number): Promise<void> {
    this.#change();
    return nodeFiles.mkdir(path, mode);
  }

  async rmdir(path: string): Promise<void> {
    this.#change();
    return nodeFiles.rmdir(path);
  }

  async lstat(path: string): Promise<Stats> {
    this.#live();
    return nodeFiles.lstat(path);
  }

  async readdir(path: string): Promise<string[]> {
    this.#live();
    return nodeFiles.readdir(path);
  }

  async statfs(path: string): Promise<StatsFs> {
    this.#live();
    return nodeFiles.statfs(path);
  }
}
