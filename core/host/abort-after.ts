/**
 * Aborts after so many milliseconds, or with one of the signals. What `AbortSignal.any` gives may never abort when only it
 * holds its parts and they are collected; here a timer and the signals hold them.
 */
export function abortAfter(ms: number, ...signals: readonly AbortSignal[]): AbortSignal {
  const controller = new AbortController();
  const timer = setTimeout(() => end(new DOMException('It took too long.', 'TimeoutError')), ms).unref();
  const pass = ({ target }: Event): void => end((target as AbortSignal).reason);

  function end(reason: unknown): void {
    clearTimeout(timer);
    for (const signal of signals) signal.removeEventListener('abort', pass);
    controller.abort(reason);
  }

  const aborted = signals.find((signal) => signal.aborted);
  if (aborted === undefined) for (const signal of signals) signal.addEventListener('abort', pass);
  else end(aborted.reason);
  return controller.signal;
}
