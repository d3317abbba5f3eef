import { provide, type ProvidedService } from '../../../../core/contracts/service.js';
import { systemClock } from '../../../../core/clock.js';
import { relayQueue } from '../../../../core/contracts/relay-queue.js';
import type { RelayQueue } from '../../../../core/contracts/relay-queue-store.js';
import type { ListenerMode } from '../../../../core/pipeline/transaction.js';
import { reject, route } from '../../../../core/pipeline/verdict.js';
import { proxy } from '../../../../plugins/upstream/proxy/index.js';
import type { Plugin } from '../../../../core/plugin.js';
import { FakeTarget, type FakeTargetOptions } from '../../../core/pipeline/fake-target.js';
import { TestEngine } from '../../../core/smtp/server/test-engine.js';
import type { Ending } from '../../../support/ending.js';
import type { SmtpClient } from '../../../support/smtp-client.js';
import { configurationOf, openPluginSite } from '../../plugin-site.js';

export interface ProxyFixtureOptions {
  readonly plugin?: Plugin;
  /** Of the plugin. */
  readonly options: object;
  readonly modes?: readonly ListenerMode[];
  /** Without a relay queue. */
  readonly queueless?: boolean;
  readonly local?: FakeTargetOptions;
  /** Of clients. */
  readonly limits?: object;
  /** What other plugins would lend. */
  readonly lent?: readonly ProvidedService[];
  readonly spare?: readonly ('retry' | 'bounce')[];
}

/** The plugin with the real engine, and targets that only note what they get; `x@localhost` is local. */
export async function proxyFixture(test: Ending, given: ProxyFixtureOptions) {
  const { plugin = proxy, options, modes = ['mx'], queueless = false, limits = {} } = given;
  // That there is one is all that is asked of it.
  const queue = {} as RelayQueue;
  const site = await openPluginSite(test, plugin, {
    options,
    clock: systemClock,
    configuration: configurationOf([]),
    lent: [...(queueless ? [] : [provide(relayQueue, queue)]), ...(given.lent ?? [])],
  });
  const { pipeline } = site;
  const steps: string[] = [];
  const targets = new Map<string, FakeTarget>();
  for (const name of ['local', 'relay', ...(given.spare ?? ['retry', 'bounce'])]) {
    const target = new FakeTarget(name, steps, name === 'local' ? given.local : {});
    targets.set(name, target);
    pipeline.deliverTo('site', name, target);
  }
  pipeline.on('users', 'rcptTo', { order: 'route' }, ({ address }) =>
    address.domain === 'localhost' && address.local !== 'nobody'
      ? route({ target: 'local', destination: address.address })
      : reject(550, '5.7.1', 'Relaying denied'),
  );
  const engine = await TestEngine.start(test, {
    pipeline,
    settings: {
      relayNetworks: ['127.0.0.1'],
      listeners: modes.map((mode) => ({ port: 0, mode, name: mode })),
      limits,
    },
  });
  return {
    ...site,
    engine,
    target: (name: string): FakeTarget => {
      const found = targets.get(name);
      if (found === undefined) throw new Error(`there is no target ${name}`);
      return found;
    },
    /** Who has the message, as `target address`. */
    holders: () => [...targets].flatMap(([name, { holds }]) => holds.map((address) => `${name} ${address}`)),
    client: (mode: ListenerMode = 'mx') =>
      engine.greeted(modes.indexOf(mode), mode === 'lmtp' ? 'LHLO client.example' : 'EHLO client.example'),
  };
}

export type ProxyFixture = Awaited<ReturnType<typeof proxyFixture>>;

/** Bytes of replies without the line ends. */
export const said = ({ raw }: { readonly raw: string }): string => raw.trimEnd();

/** MAIL and RCPT; the replies to RCPT. */
export async function address(client: SmtpClient, ...recipients: readonly string[]): Promise<readonly string[]> {
  await client.command('MAIL FROM:<anna@example.org>');
  const replies: string[] = [];
  for (const one of recipients) replies.push(said(await client.command(`RCPT TO:<${one}>`)));
  return replies;
}

export const text = 'Subject: A test\r\n\r\nHello\r\n.dot\r\n';

/** The whole transaction: the reply to the dot. */
export async function send(client: SmtpClient, ...recipients: readonly string[]): Promise<string> {
  await address(client, ...recipients);
  return said(await client.data(text));
}

export const usual = { tls: 'never', timeouts: { connectSeconds: 1 } } as const;
