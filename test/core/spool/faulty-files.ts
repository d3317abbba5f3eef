import { constants } from 'node:fs';
import { PendingWork } from '../../../core/concurrency.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';

/** Fails calls of one operation as a disk would. */
export interface Fault {
  readonly call: keyof FileLayer;
  readonly code: 'ENOSPC' | 'EDQUOT' | 'EIO' | 'EROFS' | 'EMFILE' | 'EMLINK' | 'EACCES' | 'EPERM' | 'EEXIST';
  /** Which call fails, from 1; absent: every one. */
  readonly nth?: number;
  /** Only calls on paths (or on descriptors of paths) that contain this. */
  readonly path?: string;
}

/** The error that Node makes of an errno; it has no name for EDQUOT. */
function systemError(code: Fault['code'], call: string, path: string): Error {
  const known = {
    ENOSPC: -28,
    EDQUOT: -122,
    EIO: -5,
    EROFS: -30,
    EMFILE: -24,
    EMLINK: -31,
    EACCES: -13,
    EPERM: -1,
    EEXIST: -17,
  };
  const name = code === 'EDQUOT' ? 'Unknown system error -122' : code;
  return Object.assign(new Error(`${name}: ${call} '${path}'`), {
    code: name,
    errno: known[code],
    syscall: call,
    path,
  });
}

/** The real file layer with faults on demand, and a record of the calls. */
export class FaultyFiles implements FileLayer {
  /** `fsync /tmp/x`: every call with its path, in order of starting. */
  readonly calls: string[] = [];
  /** Open paths. */
  readonly opened = new Map<number, string>();
  /** Paths opened by blocking calls. */
  readonly openedNow: string[] = [];
  /** Descriptors with O_DSYNC. */
  readonly #syncing = new Set<number>();
  /** Maximum number of open files. */
  mostOpened = 0;
  #faults: { readonly fault: Fault; seen: number }[] = [];
  #gates: { readonly call: keyof FileLayer; readonly gate: Promise<void> }[] = [];
  readonly #running = new PendingWork();
  #isKilled = false;

  order(...faults: readonly Fault[]): void {
    this.#faults = faults.map((fault) => ({ fault, seen: 0 }));
  }

  /** Calls of this kind wait until the returned function is called. */
  hold(call: keyof FileLayer): () => void {
    let release = (): void => undefined;
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    this.#gates.push({ call, gate });
    return () => {
      this.#gates = this.#gates.filter((held) => held.gate !== gate);
      release();
    };
  }

  /** As when the process is killed: resolves when no call runs, and later ones neither start nor settle. */
  kill(): Promise<void> {
    this.#isKilled = true;
    return this.#running.idle();
  }

  count(call: keyof FileLayer, path = ''): number {
    return this.calls.filter((line) => line.startsWith(`${call} `) && line.includes(path)).length;
  }

  async #before(call: keyof FileLayer, path: string): Promise<void> {
    this.calls.push(`${call} ${path}`);
    for (const held of this.#gates) if (held.call === call) await held.gate;
    for (const order of this.#faults) {
      const { fault } = order;
      if (fault.call !== call || !path.includes(fault.path ?? '')) continue;
      order.seen += 1;
      if (fault.nth === undefined || fault.nth === order.seen) throw systemError(fault.code, call, path);
    }
    if (this.#isKilled) await new Promise(() => undefined);
  }

  #pathOf(fd: number): string {
    return this.opened.get(fd) ?? 'a closed descriptor';
  }

  async open(path: string, flags: string | number, mode?: number): Promise<number> {
    await this.#before('open', path);
    const fd = await this.#running.track(nodeFiles.open(path, flags, mode));
    this.opened.set(fd, path);
    if (typeof flags === 'number' && (flags & constants.O_DSYNC) !== 0) this.#syncing.add(fd);
    else this.#syncing.delete(fd);
    this.mostOpened = Math.max(this.mostOpened, this.opened.size);
    return fd;
  }

  async openNow(path: string, flags: string | number, mode?: number): Promise<number> {
    this.openedNow.push(path);
    return this.open(path, flags, mode);
  }

  async read(fd: number, buffer: Buffer, position: number | null): Promise<number> {
    await this.#before('read', this.#pathOf(fd));
    return this.#running.track(nodeFiles.read(fd, buffer, position));
  }

  async write(fd: number, buffers: readonly Buffer[]): Promise<number> {
    await this.#before('write', this.#pathOf(fd));
    const written = await this.#running.track(nodeFiles.write(fd, buffers));
    if (this.#syncing.has(fd)) await this.#before('fsync', this.#pathOf(fd));
    return written;
  }

  async fsync(fd: number): Promise<void> {
    await this.#before('fsync', this.#pathOf(fd));
    await this.#running.track(nodeFiles.fsync(fd));
  }

  async fdatasync(fd: number): Promise<void> {
    await this.#before('fdatasync', this.#pathOf(fd));
    await this.#running.track(nodeFiles.fdatasync(fd));
  }

  /** A descriptor is closed even when close fails. */
  async close(fd: number): Promise<void> {
    const path = this.#pathOf(fd);
    this.opened.delete(fd);
    await this.#running.track(nodeFiles.close(fd));
    await this.#before('close', path);
  }

  async link(existing: string, path: string): Promise<void> {
    await this.#before('link', path);
    await this.#running.track(nodeFiles.link(existing, path));
  }

  async createNow(path: string, buffers: readonly Buffer[]): Promise<void> {
    for (const call of ['open', 'write', 'close'] as const) await this.#before(call, path);
    await this.#running.track(nodeFiles.createNow(path, buffers));
  }

  async writeNow(fd: number, buffers: readonly Buffer[]): Promise<void> {
    await this.#before('write', this.#pathOf(fd));
    await this.#running.track(nodeFiles.writeNow(fd, buffers));
  }

  async linkNow(existing: string, path: string): Promise<void> {
    await this.#before('link', path);
    await this.#running.track(nodeFiles.linkNow(existing, path));
  }

  async renameNow(from: string, to: string): Promise<void> {
    await this.#before('rename', to);
    await this.#running.track(nodeFiles.renameNow(from, to));
  }

  async rename(from: string, to: string): Promise<void> {
    await this.#before('rename', to);
    await this.#running.track(nodeFiles.rename(from, to));
  }

  async unlink(path: string): Promise<void> {
    await this.#before('unlink', path);
    await this.#running.track(nodeFiles.unlink(path));
  }

  async mkdir(path: string, mode: number): Promise<void> {
    await this.#before('mkdir', path);
    await this.#running.track(nodeFiles.mkdir(path, mode));
  }

  async rmdir(path: string): Promise<void> {
    await this.#before('rmdir', path);
    await this.#running.track(nodeFiles.rmdir(path));
  }

  async exists(path: string): Promise<boolean> {
    await this.#before('lstat', path);
    return this.#running.track(nodeFiles.exists(path));
  }

  async lstat(path: string): ReturnType<FileLayer['lstat']> {
    await this.#before('lstat', path);
    return this.#running.track(nodeFiles.lstat(path));
  }

  async readdir(path: string): Promise<string[]> {
    await this.#before('readdir', path);
    return this.#running.track(nodeFiles.readdir(path));
  }

  async statfs(path: string): ReturnType<FileLayer['statfs']> {
    await this.#before('statfs', path);
    return this.#running.track(nodeFiles.statfs(path));
  }
}
