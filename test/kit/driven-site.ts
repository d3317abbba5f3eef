import { isIP } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { HealthState } from '../../core/contracts/health.js';
import type { Plugin } from '../../core/plugin.js';
import type { WatchedEvent } from '../../core/pipeline/events.js';
import type { ListenerMode } from '../../core/pipeline/transaction.js';
import type { ClientAnswer } from './client-answer.js';
import { runCommand, type CommandResult } from './command-run.js';
import type { DeliveredMail } from './delivered-mail.js';
import type { FakeClock } from './fake-clock.js';
import type { FakeDns } from './fake-dns.js';
import type { HookRecord } from './hook-record.js';
import { HttpCaller, type CallOptions, type HttpAnswer } from './http-caller.js';
import { MemorySocket } from './memory-socket.js';
import { pageText } from './page-text.js';
import { runScript } from './script.js';
import { begin, data, mail, rcpt, type Client, type RecipientQuestion, type Sender, type Sending } from './sending.js';
import { SmtpTestSession } from './smtp-session.js';
import type { TestServer } from './test-server.js';
import { eventOf, type EventDraft } from './transaction-draft.js';
import { nextTurns } from './turns.js';

export interface SessionOptions {
  readonly ip?: string;
  /** `mx` if absent. */
  readonly mode?: ListenerMode;
}

/** A page as it was rendered. */
export interface RenderedPage {
  readonly status: number;
  readonly html: string;
  /** What a person reads, without tags, blanks joined. */
  readonly text: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** One line of the log: `level`, `msg`, `time`, `plugin` and whatever else was given. */
export type LogLine = Readonly<Record<string, unknown>> & { readonly level: string; readonly msg: string };

export interface SiteParts {
  readonly server: TestServer;
  readonly plugin: Plugin;
  readonly clock: FakeClock;
  readonly dns: FakeDns;
  readonly record: HookRecord;
  readonly delivered: readonly DeliveredMail[];
  readonly isStandIn: (plugin: string) => boolean;
  readonly overviews: Overviews;
}

/** What the server tells of itself. */
export interface Overviews {
  readonly components: () => Readonly<Record<string, { readonly status: HealthState; readonly why: string | null }>>;
  readonly families: () => Promise<
    readonly {
      readonly name: string;
      readonly samples: readonly {
        readonly name: string;
        readonly labels: Readonly<Record<string, string | number>>;
        readonly value: number;
      }[];
    }[]
  >;
}

/** How long `until` waits. */
const timeoutMs = 10_000;

/** A server with the plugin, ready to be asked. */
export class DrivenSite {
  /** Stands until `advance` turns it; with it the plugin's timers run. */
  readonly clock: FakeClock;
  /** What the plugin is told of the DNS. */
  readonly dns: FakeDns;
  readonly #parts: SiteParts;
  readonly #http: HttpCaller;
  #clients = 49_152;
  #closed: Promise<void> | undefined;

  constructor(parts: SiteParts) {
    this.clock = parts.clock;
    this.dns = parts.dns;
    this.#parts = parts;
    this.#http = new HttpCaller(parts.server.app.http.callback());
  }

  /** What the plugin provides, under the keys of its `provides`. */
  get services(): Readonly<Record<string, unknown>> {
    const { plugin, server } = this.#parts;
    const running = server.app.plugins.current.running.find((one) => one.plugin.name === plugin.name);
    return Object.fromEntries(Object.keys(plugin.provides).map((key) => [key, running?.service(key)]));
  }

  /** What a client is greeted with. */
  async connect(client: Pick<Client, 'ip'> = {}): Promise<ClientAnswer> {
    return this.#briefly(client, (session) => session.greeting);
  }

  /** The answer to EHLO, or to what came before it. */
  async hello(client: Client = {}): Promise<ClientAnswer> {
    return this.#briefly(client, (session) => begin(session, client));
  }

  /** The answer to MAIL, or to what was refused before it. */
  async mailFrom(sender: Sender = {}): Promise<ClientAnswer> {
    return this.#briefly(sender, (session) => mail(session, sender));
  }

  /** The answer to RCPT, or to what was refused before it. */
  async rcpt(question: RecipientQuestion = {}): Promise<ClientAnswer> {
    return this.#briefly(question, (session) => rcpt(session, question));
  }

  /** Sends a message: the answer to its final dot, or to what was refused before it. */
  async data(sending: Sending = {}): Promise<ClientAnswer> {
    return this.#briefly(sending, (session) => data(session, sending));
  }

  /** A client that says line by line what the test tells it to. Without a network, through the server's own engine. */
  session(options?: SessionOptions): SmtpTestSession;
  /**
   * A whole session: one line of the client after the other, the replies read in between, what follows DATA up to the
   * lone dot sent as the message. Resolves with the greeting and all replies.
   */
  session(script: string, options?: SessionOptions): Promise<readonly ClientAnswer[]>;
  session(
    first: string | SessionOptions = {},
    second: SessionOptions = {},
  ): SmtpTestSession | Promise<readonly ClientAnswer[]> {
    return typeof first === 'string' ? runScript(this.#open(second), first) : this.#open(first);
  }

  /** Calls an endpoint: access, validation, problems and all the rest are the server's own. */
  async call(method: string, path: string, options: CallOptions = {}): Promise<HttpAnswer> {
    this.#refuseClosed();
    return this.#http.call(method, path, options);
  }

  /** Renders a page in our layout. */
  async page(path: string, options: CallOptions = {}): Promise<RenderedPage> {
    const { status, headers, text } = await this.call('GET', path, { accept: 'text/html', ...options });
    return { status, html: text, text: pageText(text), headers };
  }

  /**
   * Runs a command of the plugin as `postern NAME …` does beside a running server. `answers` is what is typed when it asks.
   */
  async command(
    words: readonly string[],
    { answers = [] }: { readonly answers?: readonly string[] } = {},
  ): Promise<CommandResult> {
    const [name = ''] = words;
    const { plugin, server, clock } = this.#parts;
    const command = plugin.commands.find((one) => one.name === name);
    if (command === undefined) throw new Error(`The plugin ${plugin.name} has no command ${name}.`);
    const { data, domains, hostname, options } = server.app.configuration.current;
    return runCommand(command, {
      words,
      answers,
      clock,
      options: options.get(plugin.name),
      configuration: { data, domains, hostname },
      owner: (method, path, body) => this.call(method, path, body === undefined ? {} : { json: body }),
    });
  }

  /** Tells the watchers, and waits until they were told. Sender, recipients and the like may be given in short. */
  async emit<E extends WatchedEvent>(event: E, about: EventDraft<E> = {}): Promise<void> {
    this.#parts.server.app.pipeline.snapshot().emit(event, eventOf(event, about, this.clock));
    await nextTurns();
  }

  /**
   * Waits, in real time, until the condition holds: for what a plugin does by itself, such as an asynchronous watcher. Rejects
   * after 10 seconds.
   */
  async until(condition: () => unknown): Promise<void> {
    const began = performance.now();
    while (!(await condition())) {
      if (performance.now() - began > timeoutMs) throw new Error(`Waited in vain for ${String(condition)}`);
      await pause(5);
    }
  }

  /** Everything that arrived, in its order. */
  get delivered(): readonly DeliveredMail[] {
    return [...this.#parts.delivered];
  }

  /** What arrived in that mailbox. */
  mailbox(address: string): readonly DeliveredMail[] {
    return this.#parts.delivered.filter(
      ({ target, mailbox }) => target === 'mailbox' && mailbox === address.toLowerCase(),
    );
  }

  /** Lines of the log, the oldest first: those of the plugin. */
  get log(): readonly LogLine[] {
    return this.serverLog.filter(({ plugin }) => plugin === this.#parts.plugin.name);
  }

  /** Lines of the whole server. */
  get serverLog(): readonly LogLine[] {
    return this.#parts.server.log.ring.lines().map((line) => JSON.parse(line) as LogLine);
  }

  /**
   * The value of a metric, its name with or without `postern_`; of all its series, or of those that have these labels. A
   * histogram is asked for by `…_count` and `…_sum`. Rejects when there is no such metric.
   */
  async metric(name: string, labels: Readonly<Record<string, string | number>> = {}): Promise<number> {
    const wanted = name.startsWith('postern_') ? name : `postern_${name}`;
    const families = await this.#parts.overviews.families();
    const isKnown = families.some((family) => family.name === wanted);
    const samples = families.flatMap((family) => family.samples).filter((sample) => sample.name === wanted);
    if (!isKnown && samples.length === 0) throw new Error(`There is no metric ${wanted}.`);
    const matching = samples.filter((sample) =>
      Object.entries(labels).every(([label, value]) => String(sample.labels[label]) === String(value)),
    );
    return matching.reduce((sum, { value }) => sum + value, 0);
  }

  /** The state of a component, or of all of them. */
  health(): ReturnType<Overviews['components']>;
  health(component: string): { readonly status: HealthState; readonly why: string | null };
  health(component?: string): unknown {
    const components = this.#parts.overviews.components();
    if (component === undefined) return components;
    const { status, why } = components[component] ?? {};
    if (status === undefined) throw new Error(`There is no component ${component} in health.`);
    return { status, why };
  }

  /** The data folder; a folder that the plugin asked for lies in it. Gone after `close`, unless the test has named it. */
  get folder(): string {
    return this.#parts.server.data;
  }

  /** Gives the plugin other options, as a reload of the configuration does. Rejects when they are refused, or wait for a restart. */
  async reconfigure(options: unknown): Promise<void> {
    const { server, plugin } = this.#parts;
    await server.reconfigure({ [plugin.name]: options });
    const { plugins } = server.app;
    const why = plugins.waiting(plugins.current.wanted).get(plugin.name);
    if (why !== undefined) throw new Error(`The options are good, and ${plugin.name} takes them by a restart. ${why}`);
  }

  /** Stops the plugin and the server, and removes the folder. May be called twice. */
  close(): Promise<void> {
    this.#closed ??= this.#parts.server.close();
    return this.#closed;
  }

  #open({ ip = '192.0.2.1', mode = 'mx' }: SessionOptions): SmtpTestSession {
    this.#refuseClosed();
    if (isIP(ip) === 0) throw new TypeError(`${JSON.stringify(ip)} is no IP address.`);
    const { server, record, isStandIn } = this.#parts;
    this.#clients = this.#clients >= 65_535 ? 49_152 : this.#clients + 1;
    const port = this.#clients;
    const ends = MemorySocket.pair({ remoteAddress: ip, remotePort: port });
    const session = new SmtpTestSession({ socket: ends.client, port, record, isStandIn });
    server.app.smtp.take(mode, ends.server.asSocket());
    return session;
  }

  #refuseClosed(): void {
    if (this.#closed !== undefined) throw new Error('The site is closed.');
  }

  async #briefly(
    { ip, user }: Client,
    ask: (session: SmtpTestSession) => Promise<ClientAnswer>,
  ): Promise<ClientAnswer> {
    const mode = user === undefined ? 'mx' : 'submission';
    const session = this.#open({ mode, ...(ip !== undefined && { ip }) });
    const answer = await ask(session);
    await session.close();
    return answer;
  }
}
