/** Waits until watchers have run, which receive events in a later turn of the event loop. */
export async function nextTurns(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}
