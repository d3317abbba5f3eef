import { z } from 'zod';
import { problem } from '../../../core/problem.js';
import type { Ask } from '../database/server-state.js';
import { takeRevision } from '../shared/revisions.js';

/** Where a mailbox is, and where it goes. */
export const MailboxState = z.object({
  username: z.string(),
  node: z.string().describe('Which has it'),
  moving: z.string().nullable().describe('Node to which it moves; mail for it is queued meanwhile'),
  leaves: z.string().nullable().describe('Node that has still to remove its old copy'),
  note: z.string().nullable().describe('Why it does not move on'),
});
export type MailboxState = z.output<typeof MailboxState>;

/** @throws Problem `not-found` */
export async function mailboxState(ask: Ask, username: string): Promise<MailboxState> {
  const [row] = await ask<MailboxState>(
    'select username, node, moving, leaves, note from postern.mailbox_owner where username = $1',
    [username],
  );
  if (row === undefined) throw problem('not-found', `No node has a mailbox ${username}.`);
  return row;
}

/**
 * Says that a mailbox is to move; its node does it. For the node that has it: it stays there.
 *
 * @throws Problem
 */
export async function requestMove(ask: Ask, username: string, node: string): Promise<MailboxState> {
  const before = await mailboxState(ask, username);
  if (before.node === node && before.moving === null) return before;
  if (before.leaves !== null)
    throw problem('conflict', `${before.leaves} has still to remove its old copy of ${username}. Start it first.`);
  const moving = before.node === node ? null : node;
  if (moving !== null && moving !== before.moving) await refuseNode(ask, node);
  await ask(
    `with next as (${takeRevision('mailbox-owners')})
     update postern.mailbox_owner set moving = $2, note = null, revision = next.value from next
     where username = $1 and node = $3 and moving is distinct from $2 and leaves is null`,
    [username, moving, before.node],
  );
  return mailboxState(ask, username);
}

async function refuseNode(ask: Ask, node: string): Promise<void> {
  const [living] = await ask<{ mode: string | null }>(
    "select report -> 'mailboxes' ->> 'mode' as mode from postern.session where node = $1 and not dead",
    [node],
  );
  if (living === undefined) throw problem('not-found', `No node that lives calls itself ${node}.`);
  if (living.mode !== 'owner')
    throw problem('conflict', `${node} has no mailboxes of the cluster: its plugins.cluster.mailboxes is not owner.`);
}
