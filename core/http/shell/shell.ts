import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { join } from 'node:path';
import Koa from 'koa';
import type { Clock } from '../../clock.js';
import { InheritedSockets } from '../../net/inherited-sockets.js';
import type { ServerCertificate } from '../../net/server-certificate.js';
import { readPair, type TlsMaterial } from '../../net/tls-material.js';
import type { AttemptLimits } from '../../contracts/cluster.js';
import type { KeptSessions } from '../../contracts/browser-sessions.js';
import type { KeptAnswers } from '../../contracts/http-records.js';
import type { ForwardedRequests, Forwarder, OtherNodes } from '../../contracts/other-nodes.js';
import type { SignInHistory } from '../../contracts/sign-in-history.js';
import type { Log } from '../../log/log.js';
import type { PluginContext } from '../../plugin.js';
import { AttemptLimiter } from '../../auth/rate.js';
import { parseNetworks, type NetworkSet } from '../../net/networks.js';
import { AccessControl, AccessRules, holds } from '../access.js';
import { accessLog, beginExchange } from './access-log.js';
import type { Accounts } from '../accounts.js';
import { Assets } from './assets.js';
import { ClientPlaces } from './client-places.js';
import { AuditFile, auditTrail, type AuditSink } from './audit.js';
import { compression, securityHeaders } from '../response-headers.js';
import {
  crossSiteCheck,
  hostCheck,
  httpsRedirect,
  isLoopback,
  requireAccountForRemoteBind,
  targetCheck,
} from '../request-checks.js';
import { declaredGate, describeRoute, docsEndpoints, openApiDocument } from './openapi.js';
import type { AnyEndpoint, Method } from '../endpoint.js';
import type { Account } from '../../contracts/accounts.js';
import type { EndpointDescription } from '../../contracts/server.js';
import type { Context, ExchangeState, Middleware, Next } from '../exchange.js';
import { forwardedPaths, forwarding, setForwarder } from './forwarding.js';
import { FileAnswers, idempotency } from './idempotency.js';
import { Navigation, type NavigationLink, Notices, Pages, type PagesInput, type Side } from '../pages.js';
import { compileRoute, namesake, type Route, RouteTable } from '../routes.js';
import type { HttpSettings } from '../options.js';
import { problemBoundary } from './problem-boundary.js';
import { confirmation, handler } from './handler.js';
import { bodyParser, bodyValidator, inputReader, negotiation } from '../input.js';
import { RefusedForms } from './refused-form.js';
import { Routing } from './routing.js';
import { HttpServer, type HttpPlace, type HttpsInput, refuseForNow } from './server.js';
import { type BrowserSessions, Sessions } from '../sessions.js';
import { SharedSessions } from '../shared-sessions.js';
import { offerSignIn, signInEndpoints } from './sign-in.js';
import { Uploads } from '../body.js';
import { Views } from '../views.js';

export interface ShellInput {
  readonly settings: HttpSettings;
  readonly accounts: Accounts;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: PluginContext['metrics'];
  readonly viewsRoot: string;
  readonly publicRoot: string;
  /** Absolute path of the data folder, for uploads and the audit log. */
  readonly dataRoot: string;
  readonly version: string;
  readonly hostname: string;
  /** Maximum message size in bytes, also the limit of raw bodies whose endpoint names none. */
  readonly uploadLimit: number;
  /** For `socket` of the settings. */
  readonly sockets?: InheritedSockets;
  /** Learns of the limits of failed sign-ins. */
  readonly attemptLimits?: Pick<AttemptLimits, 'add'>;
  /** Answers by Idempotency-Key; default files in the data folder. */
  readonly sharedAnswers?: () => KeptAnswers | undefined;
  /** Sessions of browsers, asked for when it listens; default a file in the data folder. */
  readonly sharedSessions?: () => KeptSessions | undefined;
  /** Who else may have what a request is about. */
  readonly otherNodes?: () => OtherNodes | undefined;
  /** Writer of the audit trail; default `logs/audit.log` in the data folder. */
  readonly audit?: AuditSink;
  /** For the HTTPS listener without key and cert; needed with `https` of the settings. */
  readonly certificate?: ServerCertificate;
  /** Base of relative paths of key and cert; default the working folder. */
  readonly folder?: string;
  /** Learns of attempts to sign in. */
  readonly signIns?: Pick<SignInHistory, 'record' | 'addNames'>;
  /** A missing value in a view is an error; for tests. */
  readonly strictViews?: boolean;
}

/** The HTTP side of the server: plugins mount endpoints into it. */
export interface HttpShell extends ForwardedRequests {
  /** Mounts endpoints; returns the undo. Throws a start error for a missing view or a path that is taken. */
  mount(plugin: string, endpoints: readonly AnyEndpoint[]): () => void;
  navigate(plugin: string, link: NavigationLink, side?: Side): () => void;
  describe(): readonly EndpointDescription[];
  /** True when there is a GET of that path that the account may call, by the access rules in force. */
  mayOpen(account: Account | null, path: string): boolean;
  /**
   * Reads the views, or the assets, of a plugin; what is returned puts them into force, and then returns the undo.
   *
   * @throws start error for what cannot be used
   */
  views(plugin: string, folder: string): () => () => void;
  assets(plugin: string, folder: string): () => () => void;
  /** The same for the folder of `http.viewOverrides`. */
  viewOverrides(folder: string | undefined): () => () => void;
  /** URL of a file of `public/`, or of a plugin's assets. */
  asset(name: string): string;
  listen(): Promise<void>;
  /** In the background after the start; until then assets are sent uncompressed. */
  compressAssets(): void;
  address(): { readonly host: string; readonly port: number };
  /** Of the HTTPS listener; undefined without one. */
  tlsAddress(): { readonly host: string; readonly port: number } | undefined;
  /** Connections and requests, and days of the certificate, for health. */
  figures(): Readonly<Record<string, number>>;
  close(graceMs: number): Promise<void>;
  /** Applies new rules, limits and public URLs. Host and port need a restart. */
  reconfigure(settings: HttpSettings, uploadLimit?: number): void;
  callback(): RequestListener;
}

const dayMs = 86_400_000;

export function createHttpShell(input: ShellInput): HttpShell {
  return new Shell(input);
}

class Shell implements HttpShell {
  readonly #input: ShellInput;
  readonly #assets: Assets;
  readonly #views: Views;
  readonly #pages: Pages;
  readonly #navigation = new Navigation();
  readonly #uploads: Uploads;
  readonly #answers: FileAnswers;
  readonly #fileSessions: Sessions;
  #sessions: BrowserSessions;
  readonly #access: AccessControl;
  readonly #audit: AuditSink;
  readonly #koa = Object.assign(new Koa<ExchangeState>(), { compose: linked });
  readonly #listener: RequestListener;
  readonly #server: HttpServer;
  readonly #places = new ClientPlaces();
  readonly #mounted = new Set<readonly Route[]>();
  #table = new RouteTable([]);
  /** Number of changes of routes and rules. */
  #changes = 0;
  #settings: HttpSettings;
  #uploadLimit: number;
  #rules: AccessRules;
  /** Of the HTTPS listener. */
  #tlsMaterialInForce: TlsMaterial | undefined;
  #trustedProxies: NetworkSet;
  #signIns: AttemptLimiter;
  #clientSignIns: AttemptLimiter;
  #document: object | undefined;
  /** Valid until a plugin mounts or unmounts, or the rules or the address change. */
  #described: { readonly base: string; readonly endpoints: readonly EndpointDescription[] } | undefined;

  constructor(input: ShellInput) {
    const { settings, log, clock, version, hostname } = input;
    this.#input = input;
    this.#settings = settings;
    this.#uploadLimit = input.uploadLimit;
    this.#rules = new AccessRules(settings.access);
    this.#signIns = this.#countFailures(settings.limits, settings.limits.loginFailures);
    this.#clientSignIns = this.#countFailures(settings.limits, settings.limits.loginFailuresPerClient);
    input.attemptLimits?.add('http', () => this.#signIns);
    input.attemptLimits?.add('http-clients', () => this.#clientSignIns);
    this.#assets = new Assets(input.publicRoot);
    this.#views = new Views({ root: input.viewsRoot, asset: this.#assets.url, clock, strict: input.strictViews });
    this.#views.prepareOverrides(settings.viewOverrides)();
    const notices = new Notices();
    const may: PagesInput['may'] = (account, method, path) => this.#isCallable(account, method, path);
    const below = (path: string) => this.#table.pagesBelow(path).map(({ endpoint }) => endpoint.path);
    this.#pages = new Pages({
      views: this.#views,
      notices,
      navigation: this.#navigation,
      may,
      rights: (account) => `${account?.role ?? 'no account'} ${this.#changes}`,
      below,
      version,
      hostname,
    });
    this.#uploads = new Uploads(join(input.dataRoot, 'uploads'));
    this.#answers = new FileAnswers({ folder: join(input.dataRoot, 'idempotency'), clock, log });
    this.#sessions = this.#fileSessions = new Sessions({
      file: join(input.dataRoot, 'sessions.json'),
      accounts: input.accounts,
      limits: () => this.#settings.limits,
      clock,
      log,
    });
    input.signIns?.addNames(['page', 'basic'], (given) => (input.accounts.has(given) ? given : undefined));
    this.#access = new AccessControl({
      accounts: input.accounts,
      sessions: () => this.#sessions,
      limiter: () => this.#signIns,
      clientLimiter: () => this.#clientSignIns,
      exemptLoopback: () => this.#settings.limits.exemptLoopback,
      record: (attempt) => input.signIns?.record(attempt),
      log,
      hostname,
    });
    this.#audit = input.audit ?? new AuditFile(join(input.dataRoot, 'logs'), log);
    this.#useMiddleware(notices);
    this.#trustedProxies = parseNetworks(settings.trustedProxies);
    this.#listener = this.callback();
    this.#server = new HttpServer({
      listener: this.#listener,
      limits: settings.limits,
      isExempt: (address) =>
        this.#trustedProxies.has(address) || (this.#settings.limits.exemptLoopback && isLoopback(address)),
      log,
      tls: this.#tls(),
    });
    input.certificate?.watch((material) => {
      if (this.#settings.https?.cert === undefined) this.#renew(material);
    });
    const describe = () => this.describe();
    this.mount('http', [
      ...docsEndpoints(() => this.#openApi(), describe),
      ...signInEndpoints({ access: this.#access, sessions: () => this.#sessions, settings: () => this.#settings }),
    ]);
  }

  mount(plugin: string, endpoints: readonly AnyEndpoint[]): () => void {
    const routes = endpoints.map((endpoint) => compileRoute(plugin, endpoint, this.#views));
    this.#table = new RouteTable([...this.#routes(), ...routes]);
    this.#mounted.add(routes);
    this.#forgetDescriptions();
    return () => {
      this.#mounted.delete(routes);
      this.#table = new RouteTable(this.#routes());
      this.#forgetDescriptions();
    };
  }

  viewOverrides(folder: string | undefined): () => () => void {
    return this.#views.prepareOverrides(folder);
  }

  navigate(plugin: string, link: NavigationLink, side: Side = 'server'): () => void {
    return this.#navigation.add(plugin, link, side);
  }

  /** An endpoint with another account's credentials is not callable by this one. */
  #isCallable(account: Account | null, method: Method, href: string): boolean | undefined {
    const [path = ''] = href.split(/[?#]/);
    const found = this.#table.find(path);
    const route = found?.routes.get(method)?.route;
    if (found === undefined || route === undefined || namesake(path, method, found) !== undefined) return undefined;
    const gate = this.#rules.gate(method, path, route.endpoint);
    return gate.kind === 'access' && holds(account, gate.access);
  }

  mayOpen(account: Account | null, path: string): boolean {
    return this.#isCallable(account, 'GET', path) ?? false;
  }

  describe(): readonly EndpointDescription[] {
    const base = this.#base();
    if (this.#described?.base !== base) {
      this.#described = { base, endpoints: this.#routes().map((route) => describeRoute(route, this.#rules, base)) };
    }
    return this.#described.endpoints;
  }

  views(plugin: string, folder: string): () => () => void {
    return this.#views.prepare(plugin, folder);
  }

  assets(plugin: string, folder: string): () => () => void {
    const register = this.#assets.prepare(plugin, folder);
    return () => {
      const undo = register();
      if (this.#server.listening) this.compressAssets();
      return undo;
    };
  }

  asset(name: string): string {
    return this.#assets.url(name);
  }

  async listen(): Promise<void> {
    requireAccountForRemoteBind(this.#settings, this.#input.accounts.chosen);
    this.#uploads.sweep();
    this.#answers.load();
    await this.#openSessions();
    await this.#server.listen(this.#listeningPlace());
  }

  async #openSessions(): Promise<void> {
    const { accounts, log, sharedSessions } = this.#input;
    const store = sharedSessions?.();
    if (store === undefined) await this.#fileSessions.load();
    else this.#sessions = new SharedSessions({ store, accounts, limits: () => this.#settings.limits, log });
  }

  compressAssets(): void {
    void this.#assets.compress(this.#input.log);
  }

  address(): { readonly host: string; readonly port: number } {
    return this.#server.address();
  }

  tlsAddress(): { readonly host: string; readonly port: number } | undefined {
    return this.#server.tlsAddress();
  }

  figures(): Readonly<Record<string, number>> {
    const { validTo } = this.#tlsMaterialInForce ?? {};
    return {
      ...this.#server.figures(),
      unnamedProxyRequestsTotal: this.#places.ofUnnamedProxies,
      ...(validTo !== undefined && { certificateDays: Math.floor((validTo - this.#input.clock.now()) / dayMs) }),
    };
  }

  async close(graceMs: number): Promise<void> {
    await this.#server.close(graceMs);
    await this.#sessions.close();
    await this.#audit.close();
  }

  reconfigure(settings: HttpSettings, uploadLimit = this.#uploadLimit): void {
    const rules = new AccessRules(settings.access);
    const material = this.#tlsMaterial(settings);
    if (material !== undefined) this.#renew(material);
    const { loginFailures, loginFailuresPerClient, loginWindowSeconds, credentialSeconds } = this.#settings.limits;
    const { limits } = settings;
    const otherWindow = limits.loginWindowSeconds !== loginWindowSeconds;
    if (otherWindow || limits.loginFailures !== loginFailures) {
      this.#signIns = this.#countFailures(limits, limits.loginFailures);
    }
    if (otherWindow || limits.loginFailuresPerClient !== loginFailuresPerClient) {
      this.#clientSignIns = this.#countFailures(limits, limits.loginFailuresPerClient);
    }
    if (limits.credentialSeconds !== credentialSeconds) this.#input.accounts.remember(limits.credentialSeconds);
    this.#settings = settings;
    this.#uploadLimit = uploadLimit;
    this.#trustedProxies = parseNetworks(settings.trustedProxies);
    this.#rules = rules;
    this.#forgetDescriptions();
    this.#server.limit(settings.limits);
  }

  /** Before the listener is open, not all endpoints are mounted. */
  answer(request: IncomingMessage, response: ServerResponse, forwarder: Forwarder): void {
    setForwarder(request, forwarder);
    if (this.#server.listening) this.#listener(request, response);
    else refuseForNow(response);
  }

  callback(): RequestListener {
    const handle = this.#koa.callback();
    return (request, response) => void handle(request, response);
  }

  #useMiddleware(notices: Notices): void {
    const { log, clock, metrics } = this.#input;
    const settings = () => this.#settings;
    const access = this.#access;
    const table = () => this.#table;
    const pages = this.#pages;
    const routing = new Routing({ table, rules: () => this.#rules, access, settings, pages });
    const refusedForms = new RefusedForms({ table, access, pages, notices });
    const app = { use: (stage: Middleware) => this.#koa.use(stage as Koa.Middleware<ExchangeState>) };

    app.use(beginExchange(clock, () => this.#trustedProxies));
    app.use(accessLog(log, clock, metrics));
    app.use(compression());
    app.use(securityHeaders(settings));
    app.use(auditTrail(this.#audit, clock, metrics));
    app.use(problemBoundary(pages, log));
    app.use(hostCheck(settings));
    app.use(httpsRedirect(settings));
    app.use(targetCheck(() => settings().limits.targetBytes));
    app.use(forwardedPaths(table));
    app.use(this.#assets.serve);
    app.use(crossSiteCheck(settings));
    app.use(offerSignIn());
    app.use(this.#uploads.releaseAfter);

    app.use(routing.findPath);
    app.use(routing.matchMethod);
    app.use(routing.checkAccess);
    app.use(this.#places.takePlace);
    app.use(routing.explainNotFound);
    app.use(forwarding({ otherNodes: () => this.#input.otherNodes?.(), access }));
    app.use(negotiation());
    app.use(bodyParser(settings, () => this.#uploadLimit, this.#uploads));
    app.use(idempotency(() => this.#input.sharedAnswers?.() ?? this.#answers));
    app.use(inputReader(access));
    app.use(refusedForms.showAgain);
    app.use(bodyValidator());
    app.use(confirmation(pages));
    app.use(handler(pages, notices, this.#places));
    this.#koa.on('error', (error: unknown) => logTransport(log, error));
  }

  #listeningPlace(): HttpPlace {
    const { host, port, socket } = this.#settings;
    const { sockets = InheritedSockets.none } = this.#input;
    return socket === undefined ? { host, port } : { socket, fd: sockets.find(socket, 'HTTP') };
  }

  #tls(): HttpsInput | undefined {
    const { https } = this.#settings;
    const material = this.#tlsMaterial(this.#settings);
    if (https === undefined || material === undefined) return undefined;
    this.#tlsMaterialInForce = material;
    return { place: https, material, challengeFor: (name) => this.#input.certificate?.challengeFor(name) };
  }

  #renew(material: TlsMaterial): void {
    if (this.#settings.https === undefined) return;
    this.#tlsMaterialInForce = material;
    this.#server.renew(material);
  }

  /** Throws a start error when key and cert cannot be used. */
  #tlsMaterial({ https }: HttpSettings): TlsMaterial | undefined {
    const { certificate, folder = '.' } = this.#input;
    if (https?.key === undefined && https?.cert === undefined) return https && certificate?.material;
    return readPair(https, 'HTTPS', folder);
  }

  #countFailures({ loginWindowSeconds: windowSeconds }: HttpSettings['limits'], limit: number): AttemptLimiter {
    return new AttemptLimiter({ limit, windowSeconds, maxKeys: 10_000, clock: this.#input.clock });
  }

  #routes(): readonly Route[] {
    return [...this.#mounted].flat();
  }

  #forgetDescriptions(): void {
    this.#changes += 1;
    this.#document = undefined;
    this.#described = undefined;
  }

  #openApi(): object {
    this.#document ??= openApiDocument(
      this.#routes(),
      (route) => declaredGate(this.#rules, route),
      this.#input.version,
    );
    return this.#document;
  }

  #base(): string {
    const [first] = this.#settings.publicUrls;
    if (first !== undefined) return first.replace(/\/$/, '');
    const { host, port } = this.#server.listening ? this.#server.address() : this.#settings;
    return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
  }
}

/** For Koa: each stage gets the next one as a function of the context, so that nothing is made for a request. */
function linked(stages: readonly Middleware[]): (ctx: Context) => Promise<unknown> {
  const first = stages.reduceRight<Next>(
    (next, stage) => (ctx) => stage(ctx, next),
    () => Promise.resolve(),
  );
  return async (ctx) => first(ctx);
}

/** A client that disconnects is no error. */
function logTransport(log: Log, error: unknown): void {
  const code = (error as NodeJS.ErrnoException | null)?.code ?? '';
  const gone = ['ECONNRESET', 'EPIPE', 'ECONNABORTED', 'ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_DESTROYED'];
  log[gone.includes(code) ? 'debug' : 'error']({ err: error }, 'an answer could not be sent');
}
