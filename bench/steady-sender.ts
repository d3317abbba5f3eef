import { setTimeout as pause } from 'node:timers/promises';
import { messageOf, Session } from './senders.js';

/** Messages at a fixed rate over sessions that stay open, until the process is told to end. */
export interface SteadyLoad {
  readonly port: number;
  readonly perSecond: number;
  readonly sessions: number;
  /** In turn. */
  readonly recipients: readonly string[];
}

const text = messageOf(5000);
/** Of one session; servers end one that has sent more. */
const perSession = 900;

/** Run as a process of its own, so that its work is not counted as the server's. It says how many messages a second it has sent. */
async function run({ port, perSecond, sessions, recipients }: SteadyLoad): Promise<void> {
  const started = performance.now();
  const stop = new AbortController();
  process.once('SIGTERM', () => stop.abort());
  let sent = 0;
  async function send(first: number): Promise<void> {
    let session = await Session.open(port);
    for (let count = first; !stop.signal.aborted; count += sessions) {
      const wait = started + (count * 1000) / perSecond - performance.now();
      if (wait > 0) await pause(wait);
      if (count >= sessions && Math.floor(count / sessions) % perSession === 0) {
        await session.quit();
        session = await Session.open(port);
      }
      await session.send(text, [recipients[count % recipients.length] ?? '']);
      sent += 1;
    }
    await session.quit();
  }
  await Promise.all(Array.from({ length: sessions }, (_, first) => send(first)));
  process.stdout.write(String((sent / (performance.now() - started)) * 1000));
}

await run(JSON.parse(process.argv[2] ?? '') as SteadyLoad);
