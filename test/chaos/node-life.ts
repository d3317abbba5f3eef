/** Loaded into each node before its own module: the run shifts its wall clock, and it ends with the run. */
const trueNow = Date.now;
let shiftMs = 0;

Date.now = () => trueNow() + shiftMs;
process.on('message', (message: { readonly shiftMs: number }) => {
  shiftMs = message.shiftMs;
});
process.on('disconnect', () => process.exit());
process.channel?.unref();

/** Returns when the run has continued the process. */
export async function stopHere(id: string): Promise<void> {
  await new Promise((resolve) => process.send?.({ stops: id }, resolve));
  process.kill(process.pid, 'SIGSTOP');
}
