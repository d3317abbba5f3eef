import { z } from 'zod';
import { accountList } from '../../core/contracts/accounts.js';
import { definePlugin } from '../../core/plugin.js';
import { accountCommand } from './account-command.js';
import { accountEndpoints } from './http/routes.js';

/** Accounts of the HTTP interface, as page, JSON and command. */
export const accounts = definePlugin({
  name: 'accounts',
  options: z.strictObject({}),
  needs: { accountList },
  commands: [accountCommand],
  setup({ http }, { accountList: list }) {
    http.navigate({ title: 'Accounts', href: '/accounts', order: 92, role: 'admin', group: 'Admin' });
    http.mount(accountEndpoints(list));
    return {};
  },
});
