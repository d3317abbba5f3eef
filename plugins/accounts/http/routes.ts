import { z } from 'zod';
import { maxPasswordCharacters, minPasswordCharacters } from '../../../core/auth/password.js';
import type { AccountList, ListedAccount } from '../../../core/contracts/accounts.js';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';

const roles = ['read', 'operate', 'admin'] as const;
const Role = z.enum(roles);
const Password = z.string().min(1).max(1024);

const AccountAnswer = z.object({
  username: z.string(),
  role: Role,
  source: z
    .enum(['configuration', 'environment', 'data folder', 'cluster'])
    .describe('Only those of the data folder or the cluster change here.'),
});

const group = 'Access';
const Params = z.object({ username: z.string().min(1).max(128) });
const shown = {
  passwordRule: { shortest: minPasswordCharacters, longest: maxPasswordCharacters },
  roles: [
    { value: 'read', label: 'read: service pages' },
    { value: 'operate', label: 'operate: mail, queue, sending' },
    { value: 'admin', label: 'admin: everything' },
  ],
};

export function accountEndpoints(accounts: AccountList): readonly AnyEndpoint[] {
  return [
    listAccounts(accounts),
    addAccount(accounts),
    showAccount(accounts),
    changeAccount(accounts),
    removeAccount(accounts),
  ];
}

const listAccounts = (accounts: AccountList) =>
  defineEndpoint({
    method: 'GET',
    path: '/accounts',
    summary: 'Accounts of the HTTP interface',
    group,
    access: 'admin',
    answer: z.object({ accounts: z.array(AccountAnswer) }),
    view: 'list.njk',
    cache: 'no-store',
    handle: () => ({ accounts: accounts.list() }),
    page: ({ accounts: all }, { request }) => ({
      ...shown,
      own: request.account?.username,
      accounts: all.map((account) => ({ ...account, path: pathOf(account) })),
    }),
  });

const addAccount = (accounts: AccountList) =>
  defineEndpoint({
    method: 'POST',
    path: '/accounts',
    summary: 'Add an account of the HTTP interface',
    group,
    access: 'admin',
    success: [201],
    problems: ['conflict'],
    body: {
      kind: 'fields',
      schema: z.strictObject({ username: z.string().min(1).max(64), password: Password, role: Role }),
    },
    answer: AccountAnswer,
    cache: 'no-store',
    handle: async ({ body }) => {
      const account = await accounts.add(body);
      const { username, role } = account;
      return respond({
        status: 201,
        location: pathOf(account),
        model: account,
        notice: `${username} was added.`,
        audit: { action: 'add account', selector: { username, role } },
      });
    },
  });

const showAccount = (accounts: AccountList) =>
  defineEndpoint({
    method: 'GET',
    path: '/accounts/{username}',
    summary: 'One account of the HTTP interface',
    group,
    access: 'admin',
    params: Params,
    answer: AccountAnswer,
    view: 'account.njk',
    cache: 'no-store',
    handle: ({ params }) => accounts.get(params.username),
    page: (account) => ({
      ...shown,
      shown: account,
      path: pathOf(account),
      editable: account.source === 'data folder' || account.source === 'cluster',
    }),
  });

const changeAccount = (accounts: AccountList) =>
  defineEndpoint({
    method: 'PATCH',
    path: '/accounts/{username}',
    summary: 'Change the password or role of an account; its sessions end',
    group,
    access: 'admin',
    problems: ['conflict'],
    params: Params,
    body: {
      kind: 'fields',
      schema: z
        .strictObject({ password: Password.optional(), role: Role.optional() })
        .refine(({ password, role }) => password !== undefined || role !== undefined, 'give password or role'),
    },
    answer: AccountAnswer,
    cache: 'no-store',
    handle: async ({ params: { username }, body }) => {
      const account = await accounts.change(username, body);
      const fields = Object.keys(body);
      return respond({
        status: 200,
        location: pathOf(account),
        model: account,
        notice:
          body.role === undefined ? `${username} has a new password.` : `${username} has the role ${account.role}.`,
        audit: { action: 'change account', selector: { username, fields, role: account.role } },
      });
    },
  });

const removeAccount = (accounts: AccountList) =>
  defineEndpoint({
    method: 'DELETE',
    path: '/accounts/{username}',
    summary: 'Remove an account of the HTTP interface; its sessions end',
    group,
    access: 'admin',
    problems: ['conflict'],
    params: Params,
    answer: z.object({ username: z.string(), removed: z.literal(true) }),
    cache: 'no-store',
    confirm: 'Remove this account? It can no longer sign in, and its sessions end.',
    handle: async ({ params: { username } }) => {
      await accounts.remove(username);
      return respond({
        status: 200,
        location: '/accounts',
        model: { username, removed: true },
        notice: `${username} was removed.`,
        audit: { action: 'remove account', selector: { username } },
      });
    },
  });

const pathOf = ({ username }: Pick<ListedAccount, 'username'>): string => `/accounts/${encodeURIComponent(username)}`;
