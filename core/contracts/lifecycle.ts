import { service } from '../host/service.js';

/** For what must end when the server is told to stop, before it has stopped. */
export interface Lifecycle {
  /** Aborted as soon as the server takes no more mail; sessions and requests under way still finish. */
  readonly stopping: AbortSignal;
  /** Milliseconds that what is under way may still take: one deadline for the whole stop. Infinity before it. */
  remainingMs(): number;
  /** Resolves when mail may come in: all plugins run, and what a crash left in the spool is where it belongs. */
  readonly started: Promise<void>;
}
export const lifecycle = service<Lifecycle>('postern.lifecycle');
