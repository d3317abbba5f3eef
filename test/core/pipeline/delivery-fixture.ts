import type { DeliveryResult } from '../../../core/pipeline/transaction-pipeline.js';
import type { WatchedEvent } from '../../../core/pipeline/events.js';
import type { DeliveryDeadline } from '../../../core/pipeline/commit.js';
import type { Recipient, ListenerMode } from '../../../core/pipeline/transaction.js';
import { FakeTarget, type FakeTargetOptions } from './fake-target.js';
import { MemoryMessage, pipelineOf, transactionOf } from './pipeline-fixture.js';

/** A pipeline with fake targets, and what came of one message through it. */
export function deliveryOf(targets: Readonly<Record<string, FakeTargetOptions>>) {
  const { pipeline, lines } = pipelineOf();
  const steps: string[] = [];
  const events: string[] = [];
  const fakes: Record<string, FakeTarget> = {};
  for (const [name, options] of Object.entries(targets)) {
    const fake = new FakeTarget(name, steps, options);
    fakes[name] = fake;
    pipeline.deliverTo(name, name, fake);
  }
  for (const event of ['delivered', 'deferred', 'bounced', 'rejected'] as const satisfies readonly WatchedEvent[]) {
    pipeline.watch('site', event, (data) => {
      const { recipient } = data;
      const address = recipient === undefined || 'domain' in recipient ? recipient : recipient.address;
      events.push(`${event} ${address?.address}`);
    });
  }
  const message = new MemoryMessage();
  return {
    pipeline,
    lines,
    steps,
    events,
    message,
    fake(name: string): FakeTarget {
      const found = fakes[name];
      if (found === undefined) throw new Error(`there is no target ${name}`);
      return found;
    },
    /** Everybody who has the message, in any target. */
    holders: () => Object.values(fakes).flatMap(({ holds }) => holds),
    deliver(recipients: readonly (string | Recipient)[], mode: ListenerMode = 'mx', timeout?: DeliveryDeadline) {
      return pipeline.snapshot().deliver(transactionOf(recipients, mode), message, timeout);
    },
  };
}

export const summary = ({ summary }: DeliveryResult): string =>
  `${summary.code} ${summary.status} ${summary.lines.join(' ')}`;

export const codes = ({ replies }: DeliveryResult): readonly number[] => replies.map(({ code }) => code);

/** Each recipient that was accepted, and the target that has it. */
export const whereabouts = ({ recipients }: DeliveryResult): readonly string[] =>
  recipients.map(({ address, hop, discarded }) => `${address.address} ${discarded ? 'discarded' : hop?.target}`);

export const queued = '250 2.0.0 Ok: queued as id1';
