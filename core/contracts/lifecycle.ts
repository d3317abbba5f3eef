import { service } from './service.js';

/** For what must end when the server is told to stop, before it has stopped. */
export interface Lifecycle {
  /** Aborted as soon as the server accepts no more mail; running sessions and requests still finish. */
  readonly stopping: AbortSignal;
  /** Milliseconds left for running work: one deadline for the whole stop. Infinity before it. */
  remainingMs(): number;
  /** Resolves when mail may be accepted: all plugins run, and messages left in the spool by a crash are restored. */
  readonly started: Promise<void>;
}
export const lifecycle = service<Lifecycle>('postern.lifecycle');
