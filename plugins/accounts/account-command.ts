import { z } from 'zod';
import { answered, type Command, type CommandInput, confirm, type Terminal } from '../../core/cli/command.js';
import { askNewPassword } from '../../core/cli/terminal.js';
import type { AccountList, ListedAccount } from '../../core/contracts/accounts.js';
import type { OwnerCall } from '../../core/contracts/server.js';
import { startError, usageError } from '../../core/problem.js';

const usage = [
  'postern account add NAME ROLE [--json]     add an account of the HTTP interface: read, operate or admin; asks for a password',
  'postern account list [--json]              names, roles and where each is kept',
  'postern account password NAME [--json]     ask for a new password; sessions of the account end',
  'postern account role NAME ROLE [--json]    give it another role; sessions of the account end',
  'postern account remove NAME [--json]       remove an account; its sessions end',
] as const;

const Role = z.enum(['read', 'operate', 'admin']);

/** What the command needs of the accounts, here or in a running server. */
type Accounts = Pick<AccountList, 'add' | 'change' | 'remove'> & {
  list(): readonly ListedAccount[] | Promise<readonly ListedAccount[]>;
};

/** Opens the accounts of a data folder that no server has open. */
type OpenStored = (input: Pick<CommandInput<unknown>, 'configuration' | 'clock'>) => Promise<AccountList>;

/** `postern account …`. Passwords are asked for, never taken from the command line, where others could read them. */
export const accountCommand = (openStored: OpenStored): Command<unknown> => ({
  name: 'account',
  summary: 'Accounts of the HTTP interface: add, list, change role or password, remove',
  usage,
  flags: ['json'],
  run: (input) => run(input, openStored),
});

async function run(input: CommandInput<unknown>, openStored: OpenStored): Promise<void> {
  const [word = '', ...args] = input.args;
  const { terminal } = input;
  const action = Object.hasOwn(actions, word) ? actions[word] : undefined;
  if (action === undefined || args.length !== action.words) throw usageError(usage);
  const { owner } = input;
  const accounts = owner === undefined ? await openStored(input) : remoteAccounts(owner);
  const { text, value } = await action.run(accounts, terminal, args);
  if (input.flags?.has('json') === true) {
    terminal.print(JSON.stringify(value, null, 2));
    return;
  }
  for (const line of text) terminal.print(line);
  if (owner === undefined) terminal.print(`Data folder: ${input.configuration.data}`);
}

/** What an action prints, as text and as JSON. */
interface Printed {
  readonly text: readonly string[];
  readonly value: unknown;
}

interface Action {
  /** Number of words after the action. */
  readonly words: number;
  run(accounts: Accounts, terminal: Terminal, args: readonly string[]): Promise<Printed>;
}

const actions: Readonly<Record<string, Action>> = {
  list: {
    words: 0,
    run: async (accounts) => {
      const list = await accounts.list();
      return { text: list.map(({ username, role, source }) => `${username}  (${role}; ${source})`), value: list };
    },
  },
  add: {
    words: 2,
    run: async (accounts, terminal, [username = '', word]) => {
      const role = roleOf(word);
      const account = await accounts.add({ username, role, password: await newPassword(terminal) });
      return { text: [`${username} was added.`], value: account };
    },
  },
  role: {
    words: 2,
    run: async (accounts, _terminal, [username = '', word]) => {
      const role = roleOf(word);
      return { text: [`${username} has the role ${role}.`], value: await accounts.change(username, { role }) };
    },
  },
  password: {
    words: 1,
    run: async (accounts, terminal, [username = '']) => {
      const password = await newPassword(terminal);
      return { text: [`${username} has a new password.`], value: await accounts.change(username, { password }) };
    },
  },
  remove: {
    words: 1,
    run: async (accounts, terminal, [username = '']) => {
      await confirm(terminal, `Remove the account ${username}?`);
      await accounts.remove(username);
      return { text: [`${username} was removed.`], value: { removed: username } };
    },
  },
};

function roleOf(word: string | undefined): z.output<typeof Role> {
  const role = Role.safeParse(word).data;
  if (role === undefined) throw usageError(usage);
  return role;
}

async function newPassword(terminal: Terminal): Promise<string> {
  const password = await askNewPassword(terminal);
  if (password === '') throw startError('No password was given: nothing was changed.');
  return password;
}

const Listed = z.object({
  username: z.string(),
  role: Role,
  source: z.enum(['configuration', 'environment', 'data folder', 'cluster']),
});

function remoteAccounts(call: OwnerCall): Accounts {
  const pathOf = (username: string) => `/accounts/${encodeURIComponent(username)}`;
  return {
    list: async () => answered(await call('GET', '/accounts'), z.object({ accounts: z.array(Listed) })).accounts,
    add: async (account) => answered(await call('POST', '/accounts', account), Listed),
    change: async (username, change) => answered(await call('PATCH', pathOf(username), change), Listed),
    remove: async (username) => void answered(await call('DELETE', pathOf(username)), z.unknown()),
  };
}
