import { join } from 'node:path';
import { z } from 'zod';
import { type Document, openDocument } from '../../../core/disk/document.js';

/** `users.json`: the users that this node knew when it wrote them. */
const CopiedUsers = z.strictObject({
  /** Null before they were read. */
  revision: z.int().nullable(),
  users: z.array(
    z.strictObject({
      username: z.string(),
      passwordHash: z.string().nullable(),
      aliases: z.array(z.string()),
      quota: z.int().nullable(),
      disabled: z.boolean(),
      createdAt: z.string(),
    }),
  ),
});
export type CopiedUsers = z.output<typeof CopiedUsers>;

/** `documents.json`: documents by name; null for one that there was not. */
const CopiedDocuments = z.record(z.string(), z.strictObject({ text: z.string(), version: z.int() }).nullable());
export type CopiedDocuments = z.output<typeof CopiedDocuments>;

/** `mailbox-owners.json`: which node had which mailbox, and how nodes were reached. */
const CopiedOwners = z.strictObject({
  revision: z.int(),
  owners: z.array(z.strictObject({ username: z.string(), node: z.string(), moving: z.string().nullable() })),
  addresses: z.record(z.string(), z.string()),
});
export type CopiedOwners = z.output<typeof CopiedOwners>;

interface Copies {
  readonly users: Document<CopiedUsers>;
  readonly documents: Document<CopiedDocuments>;
  readonly owners: Document<CopiedOwners>;
}

/** What a node knows when it starts while the database is away. */
export async function openCopies(folder: string): Promise<Copies> {
  return {
    owners: await openDocument<CopiedOwners>({
      file: join(folder, 'mailbox-owners.json'),
      schema: CopiedOwners,
      initial: { revision: 0, owners: [], addresses: {} },
    }),
    users: await openDocument<CopiedUsers>({
      file: join(folder, 'users.json'),
      schema: CopiedUsers,
      initial: { revision: null, users: [] },
    }),
    documents: await openDocument<CopiedDocuments>({
      file: join(folder, 'documents.json'),
      schema: CopiedDocuments,
      initial: {},
    }),
  };
}
