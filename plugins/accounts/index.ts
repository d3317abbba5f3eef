import { join } from 'node:path';
import { z } from 'zod';
import { accountList } from '../../core/contracts/accounts.js';
import { openAccounts } from '../../core/http/accounts.js';
import { definePlugin } from '../../core/plugin.js';
import { accountCommand } from './account-command.js';
import { accountEndpoints } from './http/routes.js';

/** Without a running server only the accounts of the data folder are known. */
const command = accountCommand(async ({ configuration, clock }) => {
  const file = join(configuration.data, 'accounts.json');
  return (await openAccounts({ configured: [], file, adminPassword: undefined, clock })).accounts;
});

/** Accounts of the HTTP interface, as page, JSON and command. */
export const accounts = definePlugin({
  name: 'accounts',
  options: z.strictObject({}),
  needs: { accountList },
  commands: [command],
  setup({ http }, { accountList: list }) {
    http.navigate({ title: 'Accounts', href: '/accounts', order: 92, role: 'admin', group: 'Admin' });
    http.mount(accountEndpoints(list));
    return {};
  },
});
