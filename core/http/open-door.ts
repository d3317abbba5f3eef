import { startError } from '../start-error.js';
import { isLoopbackHost } from './host.js';
import type { HttpSettings } from './options.js';

/** Other machines may reach the pages only when somebody chose who may sign in. Throws a start error. */
export function refuseOpenDoor({ host }: Pick<HttpSettings, 'host'>, chosen: boolean): void {
  if (isLoopbackHost(host) || chosen) return;
  throw startError(
    `http.host ${host} can be reached from other machines, but no account was chosen: ` +
      'add one to http.accounts, or set POSTERN_ADMIN_PASSWORD, or listen on 127.0.0.1.',
  );
}
