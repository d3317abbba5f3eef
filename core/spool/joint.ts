/** Waits until all have ended, then throws the first failure if there is one: nothing goes on behind the caller's back. */
export async function jointly(tasks: readonly Promise<unknown>[]): Promise<void> {
  for (const result of await Promise.allSettled(tasks)) if (result.status === 'rejected') throw result.reason;
}
