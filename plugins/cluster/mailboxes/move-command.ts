import { setTimeout as pause } from 'node:timers/promises';
import { answered, type CommandInput } from '../../../core/cli/command.js';
import { isProblem, startError } from '../../../core/problem.js';
import type { Ask } from '../database/server-state.js';
import { MailboxState, mailboxState, requestMove } from './move-request.js';

const lookMs = 500;

/** What a move is asked of: the running server, or the database where none runs here. */
interface MoveApi {
  request(username: string, node: string): Promise<MailboxState>;
  look(username: string): Promise<MailboxState>;
}

export const movesOfServer = (owner: NonNullable<CommandInput<unknown>['owner']>): MoveApi => ({
  request: async (username, node) =>
    answered(await owner('POST', '/cluster/move-mailbox', { username, node }), MailboxState),
  look: async (username) =>
    answered(await owner('GET', `/cluster/mailboxes/${encodeURIComponent(username)}`), MailboxState),
});

export const movesInDatabase = (ask: Ask): MoveApi => ({
  request: (username, node) => asStartError(() => requestMove(ask, username, node)),
  look: (username) => asStartError(() => mailboxState(ask, username)),
});

async function asStartError<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw isProblem(error) ? startError(error.message, error) : error;
  }
}

/** Waits until the nodes have done it. Ending it ends nothing: the nodes go on, and the same command waits again. */
export async function moveMailbox(
  moves: MoveApi,
  { username, node, say }: { readonly username: string; readonly node: string; readonly say: (line: string) => void },
): Promise<MailboxState> {
  let state = await moves.request(username, node);
  let note: string | null = null;
  while (state.node !== node || state.moving !== null || state.leaves !== null) {
    if (state.node !== node && state.moving !== node)
      throw startError(`${username} stays on ${state.node}: the move was changed meanwhile.`);
    if (state.note !== note && state.note !== null) say(`It has to wait: ${state.note}`);
    note = state.note;
    await pause(lookMs);
    state = await moves.look(username);
  }
  return state;
}
