import { attemptLimits } from '../../core/contracts/cluster.js';
import { directory, type Directory, type MailUser } from '../../core/contracts/directory.js';
import { configuration } from '../../core/contracts/server.js';
import { signInHistory } from '../../core/contracts/sign-in-history.js';
import type { Address } from '../../core/mime/address.js';
import { definePlugin } from '../../core/plugin.js';
import { AttemptLimiter } from '../../core/auth/rate.js';
import type { Hook } from '../../core/pipeline/hook.js';
import type { SmtpSession } from '../../core/pipeline/transaction.js';
import { defer, next } from '../../core/pipeline/verdict.js';
import { type LocalDestination, postmasterName } from './directory.js';
import {
  type RecipientDirectory,
  recipientHook,
  senderHook,
  type SenderRule,
  signInHook,
  submittedMessageHook,
} from './hooks.js';
import { UsersOptions, type UsersSettings } from './options.js';
import type { UserDetails } from './roster.js';
import { lookingEndpoints } from './http/routes.js';
import { SignIns, usersMetrics } from './sign-ins.js';
import { userCommandElsewhere } from './user-command.js';
import { canonicalUsername, lowerCase, partsOf } from './user.js';

const signInLimitMs = 30_000;
/** Interval of the check that mail for postmaster has a recipient. */
const postmasterSeconds = 300;

/** Mail users from another plugin that provides `directory`: sign-in, recipients, senders, pages and calls use it. */
export const usersElsewhere = definePlugin({
  name: 'users',
  options: UsersOptions,
  needs: { configuration, directory, signInHistory },
  uses: { attemptLimits },
  commands: [userCommandElsewhere],
  async setup(
    { http, smtp, metrics, health, every, clock, log, onClose },
    { options, configuration, directory: users, signInHistory: history, attemptLimits: limits },
  ) {
    let settings: UsersSettings = options;
    const domains = (): readonly string[] => configuration.domains;
    const canonical = (username: string): string => canonicalUsername(username, domains());
    const limiter = ({ attempts }: UsersSettings) => new AttemptLimiter({ ...attempts, clock });
    const authenticate = (username: string, password: string) => users.authenticate(username, password);
    const signIns = new SignIns({ authenticate, canonical }, limiter(settings));
    onClose(limits?.add('users', () => signIns.attempts) ?? (() => undefined));
    let known = 0;
    const count = usersMetrics(metrics, () => known);
    const sessions = new WeakSet<SmtpSession>();
    smtp.on('auth', { timeLimitMs: signInLimitMs }, signInHook(signIns, { begin: (one) => sessions.add(one) }, count));
    smtp.on('mailFrom', { order: 'first', signedIn: true }, lockedOutHook(sessions, users));
    const senders = senderRule(users, () => settings);
    smtp.on('mailFrom', { signedIn: true }, senderHook(senders));
    smtp.on('message', { signedIn: true }, submittedMessageHook(senders, configuration.hostname, clock));
    const postmaster = () => users.find(postmasterName(settings, domains()));
    smtp.on('rcptTo', { order: 'route', after: '*' }, recipientHook(recipients(users, configuration, postmaster)));
    http.navigate({ title: 'Users', href: '/users', order: 30, role: 'read', group: 'Mail' });
    const roster = { list: async () => (await users.list()).map(detailsOf) };
    http.mount(lookingEndpoints({ roster, directory: users, domains, signIns, count, history, editable: false }));

    let hasPostmaster = true;
    const look = async (): Promise<void> => {
      hasPostmaster = (await postmaster()) !== undefined;
      known = (await users.list()).length;
    };
    every(postmasterSeconds, look);
    await look().catch((error: unknown) => log.warn({ err: error }, 'the directory does not answer'));
    health.check('users', () => {
      if (hasPostmaster) return { status: 'up' };
      const name = postmasterName(settings, domains());
      const why = `The directory ${users.source} has no ${name}, to whom mail for postmaster goes: add it, or name another in plugins.users.postmaster.`;
      return { status: 'degraded', why };
    });
    return {
      reconfigure(changed: UsersSettings) {
        settings = changed;
        signIns.use(limiter(changed));
      },
    };
  },
});

function recipients(
  users: Directory,
  configuration: { readonly domains: readonly string[]; readonly hostname: string },
  postmaster: () => ReturnType<Directory['find']>,
): RecipientDirectory {
  const isLocal = (domain: string): boolean => configuration.domains.includes(domain);
  return {
    isLocal,
    async lookup(address: Address): Promise<MailUser | undefined> {
      const isPostmaster = lowerCase(address.local) === 'postmaster';
      const found = isLocal(address.domain) ? await users.resolve(address) : undefined;
      if (found !== undefined || !isPostmaster) return found;
      return isLocal(address.domain) || address.domain === configuration.hostname ? postmaster() : undefined;
    },
  };
}

/** A session whose user was removed or disabled meanwhile may not send. */
function lockedOutHook(sessions: WeakSet<SmtpSession>, users: Directory): Hook<'mailFrom'> {
  return async ({ transaction: { session } }) => {
    if (session.user === undefined || !sessions.has(session)) return next();
    const user = await users.find(session.user.username);
    return user === undefined || user.disabled ? defer(421, '4.7.0', 'Connect and sign in again') : next();
  };
}

/** By names and aliases of the user; addresses of the catch-all belong to no user. */
function senderRule(users: Directory, settings: () => UsersSettings): SenderRule {
  const bare = ({ local, domain }: LocalDestination): string => {
    const { plusDetail } = settings();
    const at = plusDetail === '' ? -1 : local.indexOf(plusDetail);
    return `${lowerCase(at > 0 ? local.slice(0, at) : local)}@${domain}`;
  };
  return {
    async allows(username, address) {
      const { senders } = settings();
      const user = senders === 'any' ? undefined : await users.find(username);
      if (user === undefined) return true;
      const own = [user.username, ...user.aliases].map(lowerCase);
      if (own.includes(bare(address)) || own.includes(`${lowerCase(address.local)}@${address.domain}`)) return true;
      return senders === 'domain' && own.some((name) => partsOf(name).domain === address.domain);
    },
  };
}

function detailsOf({ username, aliases, quota, disabled }: MailUser): UserDetails {
  const { domain } = partsOf(username);
  return { username, domain, aliases, quota, disabled, hasPassword: null, createdAt: null };
}
