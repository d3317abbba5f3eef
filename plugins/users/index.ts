import { join } from 'node:path';
import { directory } from '../../core/contracts/directory.js';
import { configuration } from '../../core/contracts/server.js';
import { attemptLimits } from '../../core/contracts/cluster.js';
import { type UserRecords, userRecords } from '../../core/contracts/user-records.js';
import { signInHistory } from '../../core/contracts/sign-in-history.js';
import type { Log } from '../../core/log/log.js';
import { definePlugin, type Plugin } from '../../core/plugin.js';
import { isProblem, problem } from '../../core/problem.js';
import { AttemptLimiter } from '../../core/auth/rate.js';
import { ensurePostmaster, postmasterName, UserDirectory } from './directory.js';
import { usersCheck } from './doctor-check.js';
import { usersElsewhere } from './elsewhere.js';
import { recipientHook, senderHook, SenderPolicy, signInHook, submittedMessageHook } from './hooks.js';
import { UsersOptions, type UsersSettings } from './options.js';
import { LocalRoster } from './roster.js';
import { userEndpoints } from './http/routes.js';
import { lockedOutHook, SignedInSessions, SignIns, usersMetrics } from './sign-ins.js';
import { userCommand } from './user-command.js';
import { openUserRecords } from './user-records.js';

/** A password check may wait for others for some seconds. */
const signInLimitMs = 30_000;

/** Mail users in `users.json`, or in records of another plugin: sign-in and recipients. */
const usersOfFile = definePlugin({
  name: 'users',
  options: UsersOptions,
  needs: { configuration, signInHistory },
  uses: { userRecords, attemptLimits },
  provides: { directory },
  commands: [userCommand],
  checks: [usersCheck],
  async setup(
    { http, smtp, metrics, health, clock, log, onClose },
    { options, configuration, signInHistory: history, userRecords: elsewhere, attemptLimits: limits },
  ) {
    let settings: UsersSettings = options;
    const records = await recordsOf(join(configuration.data, options.file), elsewhere, log);
    await ensurePostmaster(records, { settings, configuration, clock });
    const userDirectory = new UserDirectory({ records, settings, configuration, clock });
    const limiter = ({ attempts }: UsersSettings) => new AttemptLimiter({ ...attempts, clock });
    const signIns = new SignIns(userDirectory, limiter(settings));
    onClose(limits?.add('users', () => signIns.attempts) ?? (() => undefined));
    const count = usersMetrics(metrics, () => records.count);
    const postmaster = () => postmasterName(settings, configuration.domains);
    onClose(history.addNames(['smtp', 'authenticate'], (given) => userDirectory.find(given)?.username));
    // Postmaster is in the first domain.
    onClose(
      configuration.watch?.(() => ensurePostmaster(records, { settings, configuration, clock })) ?? (() => undefined),
    );
    const roster = new LocalRoster({ records, configuration, postmaster, clock });

    const sessions = new SignedInSessions(userDirectory);
    smtp.on('auth', { timeLimitMs: signInLimitMs }, signInHook(signIns, sessions, count));
    smtp.on('mailFrom', { order: 'first' }, lockedOutHook(sessions));
    const senders = new SenderPolicy(userDirectory, () => settings.senders);
    smtp.on('mailFrom', { signedIn: true }, senderHook(senders));
    smtp.on('message', { signedIn: true }, submittedMessageHook(senders, configuration.hostname, clock));
    smtp.on('rcptTo', { order: 'route', after: '*' }, recipientHook(userDirectory));
    http.navigate({ title: 'Users', href: '/users', order: 30, role: 'read', group: 'Mail' });
    http.mount(
      userEndpoints({
        roster,
        directory: userDirectory,
        domains: () => configuration.domains,
        signIns,
        count,
        history,
        editable: true,
      }),
    );
    health.check('users', () => {
      const missing = userDirectory.missingCatchAll();
      if (missing === undefined) return { status: 'up' };
      return {
        status: 'degraded',
        why: `The catch-all ${missing} is no user: add it, or change plugins.users.catchAll.`,
        page: '/users',
      };
    });

    return {
      directory: userDirectory,
      async reconfigure(changed: UsersSettings) {
        refuseOtherFile(settings, changed);
        await ensurePostmaster(records, { settings: changed, configuration, clock });
        settings = changed;
        userDirectory.use(changed);
        signIns.use(limiter(changed));
        log.info('the options of users are in force');
      },
    };
  },
});

export const users: Plugin = { ...usersOfFile, whenProvided: usersElsewhere };

/** The users of the file, or those elsewhere, which begin with the users of the first file. */
async function recordsOf(file: string, elsewhere: UserRecords | undefined, log: Log): Promise<UserRecords> {
  if (elsewhere === undefined) return openUserRecords(file);
  try {
    const users = await elsewhere.begin?.(async () => (await openUserRecords(file)).list());
    if (users !== undefined && users > 0)
      log.info({ users, file }, `the users of the file are now in ${elsewhere.source ?? 'another place'}`);
  } catch (error) {
    if (!isProblem(error) || error.problem !== 'unavailable') throw error;
    log.warn({ err: error }, 'the users cannot be compared with the database now');
  }
  return elsewhere;
}

function refuseOtherFile(now: UsersSettings, changed: UsersSettings): void {
  if (changed.file === now.file) return;
  throw problem('conflict', 'plugins.users.file can be changed only by a restart.');
}
