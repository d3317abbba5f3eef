/**
 * Aborts after so many milliseconds, or with one of the signals. Node 20 may collect what `AbortSignal.timeout` gives before
 * its time when only `AbortSignal.any` holds it; a timer holds its controller.
 */
export function abortAfter(ms: number, ...signals: readonly AbortSignal[]): AbortSignal {
  const limit = new AbortController();
  const late = () => limit.abort(new DOMException('It took too long.', 'TimeoutError'));
  setTimeout(late, ms).unref();
  return AbortSignal.any([...signals, limit.signal]);
}
