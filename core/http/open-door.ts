import { startError } from '../problem.js';
import { isLoopbackHost } from './host.js';
import type { HttpSettings } from './options.js';

/** Other machines may reach the pages only when somebody chose who may sign in. Throws a start error. */
export function refuseOpenDoor({ host, socket }: Pick<HttpSettings, 'host' | 'socket'>, chosen: boolean): void {
  if (chosen || (socket === undefined && isLoopbackHost(host))) return;
  const place = socket === undefined ? `http.host ${host}` : `http.socket ${socket}`;
  throw startError(
    `${place} can be reached from other machines, but no account was chosen: ` +
      'add one to http.accounts, or set POSTERN_ADMIN_PASSWORD, or listen on http.host 127.0.0.1.',
  );
}
