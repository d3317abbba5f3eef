import { join } from 'node:path';
import { z } from 'zod';
import { answered, type Command, type CommandInput, confirm, type Terminal } from '../../core/cli/command.js';
import type { OwnerCall } from '../../core/contracts/server.js';
import { askNewPassword } from '../../core/cli/terminal.js';
import { startError, usageError } from '../../core/problem.js';
import { postmasterName } from './directory.js';
import type { UsersSettings } from './options.js';
import { LocalRoster, type NewUser, type Roster, type UserChange, type UserDetails } from './roster.js';
import { openUserRecords } from './user-records.js';
import { UserAnswer } from './user.js';

const usage = [
  'postern user add NAME [--json]        add a mail user and ask for a password; an empty one allows no sign-in',
  'postern user list [--json]            names, aliases and state of all users',
  'postern user password NAME [--json]   ask for a new password',
  'postern user remove NAME [--json]     remove a user; the mailbox and its messages stay',
] as const;

/** What an action prints, as text and as JSON. */
interface Printed {
  readonly text: string;
  readonly value: unknown;
}

type Action = (roster: Roster, name: string, terminal: Terminal) => Promise<Printed>;

/** `passwd` is its name in version 0.1. */
const actions: Readonly<Record<string, Action>> = { add, password: changePassword, passwd: changePassword, remove };

/** `postern user …`. Passwords are asked for, never taken from the command line, where others could read them. */
export const userCommand: Command<UsersSettings> = {
  name: 'user',
  summary: 'Mail users: add, list, change the password, remove',
  usage,
  flags: ['json'],
  run: (input) => run(input, rosterOf),
};

/** The same when another plugin manages the users: calls the running server. */
export const userCommandElsewhere: Command<UsersSettings> = {
  ...userCommand,
  run: (input) =>
    run(input, ({ owner }) => {
      if (owner !== undefined) return Promise.resolve(new RemoteRoster(owner));
      const sentence = 'The users come from another plugin, which only a running server can ask: start it first.';
      return Promise.reject(startError(sentence));
    }),
};

type FindRoster = (input: CommandInput<UsersSettings>) => Promise<Roster>;

async function run(input: CommandInput<UsersSettings>, findRoster: FindRoster): Promise<undefined> {
  const [word = '', name, ...rest] = input.args;
  const { terminal, flags, owner, configuration } = input;
  const json = flags?.has('json') === true;
  if (word === 'list' && name === undefined) {
    const users = await (await findRoster(input)).list();
    if (json) terminal.print(JSON.stringify(users, null, 2));
    else for (const user of users) terminal.print(lineOf(user));
    return undefined;
  }
  const action = Object.hasOwn(actions, word) ? actions[word] : undefined;
  if (action === undefined || name === undefined || rest.length > 0) {
    throw usageError(usage);
  }
  const { text, value } = await action(await findRoster(input), name, terminal);
  terminal.print(json ? JSON.stringify(value, null, 2) : text);
  if (owner === undefined && !json) terminal.print(`Data folder: ${configuration.data}`);
  return undefined;
}

async function rosterOf(input: CommandInput<UsersSettings>): Promise<Roster> {
  const { owner, options, configuration, clock } = input;
  if (owner !== undefined) return new RemoteRoster(owner);
  const records = await openUserRecords(join(configuration.data, options.file));
  const postmaster = () => postmasterName(options, configuration.domains);
  return new LocalRoster({ records, configuration, postmaster, clock });
}

async function add(roster: Roster, name: string, terminal: Terminal): Promise<Printed> {
  const password = await askNewPassword(terminal);
  const user = await roster.add({ username: name, ...(password !== '' && { password }) });
  const { username, hasPassword } = user;
  const text = hasPassword
    ? `${username} was added.`
    : `${username} was added without a password. To set one: postern user password ${username}`;
  return { text, value: user };
}

async function changePassword(roster: Roster, name: string, terminal: Terminal): Promise<Printed> {
  const password = await askNewPassword(terminal);
  if (password === '') throw startError('No password was given: nothing was changed.');
  const user = await roster.change(name, { password });
  return { text: `${user.username} has a new password.`, value: user };
}

async function remove(roster: Roster, name: string, terminal: Terminal): Promise<Printed> {
  await confirm(terminal, `Remove the user ${name}? The mailbox and its messages stay.`);
  await roster.remove(name);
  return { text: `${name} was removed. The mailbox is still there.`, value: { removed: name } };
}

/** One line per user, for reading and for `grep`. */
function lineOf({ username, aliases, disabled, hasPassword }: UserDetails): string {
  const notes = [
    ...(disabled ? ['disabled'] : []),
    ...(hasPassword === false ? ['no password'] : []),
    ...(aliases.length > 0 ? [`aliases: ${aliases.join(', ')}`] : []),
  ];
  return notes.length === 0 ? username : `${username}  (${notes.join('; ')})`;
}

const ListAnswer = z.object({ details: z.array(UserAnswer) });

/** The roster of a running server over HTTP. Refusals are thrown as sentences. */
class RemoteRoster implements Roster {
  readonly #call: OwnerCall;

  constructor(call: OwnerCall) {
    this.#call = call;
  }

  async list(): Promise<readonly UserDetails[]> {
    return answered(await this.#call('GET', '/users'), ListAnswer).details;
  }

  async add(user: NewUser): Promise<UserDetails> {
    return answered(await this.#call('POST', '/users', user), UserAnswer);
  }

  async change(username: string, change: UserChange): Promise<UserDetails> {
    return answered(await this.#call('PATCH', pathOf(username), change), UserAnswer);
  }

  async remove(username: string): Promise<void> {
    answered(await this.#call('DELETE', pathOf(username)), z.unknown());
  }
}

const pathOf = (username: string): string => `/users/${encodeURIComponent(username)}`;
