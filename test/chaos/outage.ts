import { setTimeout as pause } from 'node:timers/promises';
import { fillTables } from '../plugins/cluster/cluster-fixture.js';
import type { Ending } from '../support/ending.js';
import { Postgres } from '../support/postgres.js';
import { SmtpSink } from '../support/smtp-sink.js';
import { untilTrue } from '../support/until.js';
import { nodeNames } from './chaos.js';
import { WholeNodes } from './whole-nodes.js';

interface OutageOptions {
  readonly messages: number;
  readonly outageMs: number;
  readonly sessionSeconds: number;
}

export interface OutageResult {
  /** Outcomes that were on the disks when the first node was killed. */
  readonly kept: number;
  readonly kills: number;
  readonly accepted: number;
  /** Recipients of accepted messages that have not arrived. */
  readonly lost: readonly string[];
  /** Recipients that have arrived more than once, though their message was handed in once. */
  readonly doubled: readonly string[];
  /** The same, of messages that were handed in again for want of a 250. */
  readonly handedInAgain: number;
}

const database = 'outage';
const commitTimeoutMs = 300_000;
/** Nothing is under way any more when nothing has changed for so long. */
const quietMs = 5000;

/** The database is away under load, and one node after the other is killed in that time. */
export async function runOutage(
  test: Ending,
  { messages, outageMs, sessionSeconds }: OutageOptions,
): Promise<OutageResult> {
  const postgres = await Postgres.start(test, { durable: true, fill: fillTables });
  await postgres.database(database);
  const gate = { open: Promise.resolve(), waiting: 0 };
  const dot = () => {
    gate.waiting += 1;
    return { after: gate.open.then(() => (gate.waiting -= 1)), say: '250 2.0.0 Sunk' };
  };
  const sink = await SmtpSink.start(test, { steps: { dot }, forgetText: true });
  const place = { hosts: [postgres.folder], database, sinkPort: sink.port };
  const nodes = await WholeNodes.start(test, { names: nodeNames, ...place, sessionSeconds });
  const sending = nodes.send(messages, outageMs + 10_000);
  await untilTrue('mail arrives', () => sink.messages.length > messages / 10, commitTimeoutMs);
  let open: () => void = () => undefined;
  gate.open = new Promise((resolve) => (open = resolve));
  await untilTrue('mail is at its dot', () => gate.waiting >= 5, commitTimeoutMs);
  await postgres.stop('immediate');
  const until = performance.now() + outageMs;
  open();
  await quiet(async () => `${sink.messages.length} ${await nodes.waitingOutcomes()}`);
  const kept = await nodes.waitingOutcomes();
  let kills = 0;
  for (; performance.now() < until; kills += 1) {
    await nodes.replace(nodeNames[kills % nodeNames.length] ?? '');
    await pause(Math.max(0, Math.min(outageMs / 8, until - performance.now())));
  }
  await postgres.start();
  await sending;
  const arrivals = (): Map<string, number> => {
    const counts = new Map<string, number>();
    for (const address of sink.messages.flatMap(({ recipients }) => recipients)) {
      counts.set(address, (counts.get(address) ?? 0) + 1);
    }
    return counts;
  };
  const left = 'select count(*) from postern.entry where finished_at is null';
  await untilTrue('all is settled', async () => (await postgres.psql(left, database)) === '0', commitTimeoutMs);
  const counts = arrivals();
  const doubled = [...counts].filter(([, count]) => count > 1).map(([address]) => address);
  const once = doubled.filter((address) => (nodes.sent.unanswered.get(idOf(address)) ?? 0) === 0);
  return {
    kept,
    kills,
    accepted: nodes.sent.accepted.size,
    lost: nodes.missing(new Set(counts.keys())),
    doubled: once,
    handedInAgain: doubled.length - once.length,
  };
}

/** Of the message, from the address of one of its recipients. */
const idOf = (address: string): string => `${/-(\d+)@/.exec(address)?.[1]}@chaos.example`;

async function quiet(look: () => Promise<string>): Promise<void> {
  for (let [before, since] = ['', 0]; ; await pause(200)) {
    const now = await look();
    if (now !== before) [before, since] = [now, performance.now()];
    else if (performance.now() - since > quietMs) return;
  }
}
