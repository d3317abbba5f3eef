import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { withTimeout } from '../../core/concurrency.js';
import { migrate } from '../../plugins/cluster/database/schema.js';
import { atEnd, type Ending } from '../support/ending.js';
import { freePort } from '../support/free-port.js';
import { Postgres } from '../support/postgres.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { until, untilTrue } from '../support/until.js';
import {
  type ChaosOptions,
  database,
  defaultSessionMs,
  drain,
  here,
  maxWaitMs,
  nodeNames,
  Observer,
  startSink,
} from './chaos.js';
import { Disturbances, seeded } from './disturbances.js';
import { sendAll, type Sent } from './mail-client.js';
import { judgeMail, type MailArrival, type MailVerdict } from './mail-verdict.js';
import { NodeProcess } from './node-process.js';
import { areTakenOver, leaseLog, recipientEnds, recipientLeases, waitingCount } from './queue-tables.js';

export interface MailChaosResult extends MailVerdict {
  readonly events: ReadonlyMap<string, number>;
  readonly seconds: number;
  readonly faults: readonly string[];
}

/** Whole seconds, two at least; more on a busy machine. */
export function mailSessionMs(wantedMs = 2 * defaultSessionMs()): number {
  return Math.max(2000, Math.ceil(wantedMs / 1000) * 1000);
}

/** Who gets no connection sends all of its mail to another node. */
async function takesMail(port: number): Promise<void> {
  const client = await until('a greeting', () => SmtpClient.greeted({ port }).catch(() => undefined), maxWaitMs);
  client.socket.destroy();
}

/** Three whole servers take mail by SMTP and give it to a sink, while they and their database are disturbed. */
export async function runMailChaos(test: Ending, options: ChaosOptions): Promise<MailChaosResult> {
  const { messages, events, seed, fence, sessionMs } = options;
  const started = performance.now();
  const postgres = await Postgres.start(test, { durable: true, tcp: true });
  const observer = new Observer(await postgres.database(database));
  atEnd(test, () => observer.close());
  await observer.do(migrate);
  await observer.do((client) => client.query(leaseLog));
  // There is mail under way in all of the events, and when the first node, started last, gets its share of the connections.
  const ms = Math.max(4, events) * sessionMs;
  const sink = await startSink(test, './mail-sink.js', Math.min(200, (ms * 12) / messages));
  const folder = await temporaryFolder(test);
  const ports: number[] = [];
  const nodes: NodeProcess[] = [];
  for (const [nth, name] of nodeNames.entries()) {
    await mkdir(join(folder, name));
    const smtpPort = await freePort();
    ports.push(smtpPort);
    const own = { name, smtpPort, folder: join(folder, name), sinkPort: sink.port, sessionMs, fence };
    const stops = options.stopBeforeDot === true && nth === 0 ? { stopBeforeDot: 10 } : {};
    nodes.push(
      await NodeProcess.start(test, postgres, database, { module: here('./server-node.js'), ...own, ...stops }),
    );
  }
  await Promise.all(ports.map(takesMail));
  const sent: Sent = { accepted: new Map(), unanswered: new Map() };
  const giveUp = new AbortController();
  const sending = sendAll(ports, { count: messages, ms, sent, signal: giveUp.signal });
  atEnd(test, () => giveUp.abort());
  const random = seeded(seed);
  const disturbances = new Disturbances({ nodes, postgres, database, sessionMs, random });
  const [first] = nodes;
  if (options.stopBeforeDot === true && first !== undefined) {
    const session = await withTimeout(maxWaitMs, first.stopping, 'the server has not stopped itself');
    await untilTrue(
      'its leases are those of others',
      () => observer.do((client) => areTakenOver(client, session)),
      maxWaitMs,
    );
    first.signal('SIGCONT');
  }
  for (let nth = 0; nth < events; nth += 1) {
    await pause(sessionMs * (2 / 3 + (random() * 2) / 3));
    await disturbances.next();
  }
  await disturbances.end();
  // A reply may take as long as `maxWaitMs`.
  await drain(() => messages - sent.accepted.size, 2 * maxWaitMs);
  giveUp.abort();
  await sending;
  if (sent.accepted.size < messages) throw new Error(`only ${sent.accepted.size} messages were accepted`);
  await drain(() => observer.do(waitingCount));
  for (const node of nodes) await node.kill();
  const arrivals = (await sink.end()).flatMap(([id = '', node = '', at = '', whole = '', recipients = '']) =>
    recipients.split(' ').map((address): MailArrival => ({
      id,
      address,
      node: node.replace(/\.example$/, ''),
      at: Number(at),
      whole: whole === 'true',
    })),
  );
  const leases = await observer.do(recipientLeases);
  const ends = await observer.do(recipientEnds);
  return {
    ...judgeMail({ ...sent, arrivals, leases, ends }),
    events: disturbances.counts,
    faults: nodes.flatMap((node) => node.faults),
    seconds: (performance.now() - started) / 1000,
  };
}
