import { z } from 'zod';
import { type NodeSet, readSets } from './configuration/sets.js';
import { dividedMail } from './mailboxes/node-directory.js';
import { mailboxModes } from './options.js';
import { type Ask, clockPlaySeconds, differences, readDatabase, readNodes } from './database/server-state.js';

const NodeAnswer = z.object({
  node: z.string(),
  session: z.string().describe('Of its life that began last; leases belong to it'),
  own: z.boolean().describe('Whether it is the node that answers'),
  state: z.enum(['up', 'draining', 'silent', 'dead']).describe('silent: no beat for half a session'),
  draining: z.boolean(),
  version: z.string().nullable().describe('Of Postern'),
  schema: z.int().nullable().describe('Newest version of the tables that it knows'),
  joinedAt: z.iso.datetime(),
  beatAgeSeconds: z.number().nullable(),
  clockAheadSeconds: z.number().nullable().describe('Of its machine, ahead of that of the database'),
  clockIsOff: z.boolean(),
  leases: z.int().describe('Recipients that it has taken from the queue'),
  fenced: z.int().nullable().describe('Sessions that its process has lost'),
  mailboxes: z.enum(mailboxModes).nullable().describe('Its plugins.cluster.mailboxes'),
  mailboxCount: z.int().describe('Mailboxes that it has, where nodes divide them'),
  configuration: z
    .object({
      set: z.int().nullable().describe('Applied last'),
      state: z.enum(['waiting', 'applying', 'checking', 'applied', 'refused', 'failed', 'stopped', 'none']),
      why: z.string().nullable(),
    })
    .describe('Of the set in use; none: it applies no sets. checking: its health must not fall for 10 s'),
});

const DatabaseAnswer = z.object({
  host: z.string().describe('Server in use'),
  version: z.string().describe('Of PostgreSQL'),
  schema: z.int().nullable().describe('Version of the tables'),
  synchronous: z.boolean().describe('Whether a commit waits for a standby'),
  standbys: z.array(
    z.object({
      name: z.string(),
      state: z.string().nullable(),
      mode: z.string().nullable().describe('async, sync, quorum or potential'),
      lagSeconds: z.number().nullable(),
      lagBytes: z.number().nullable(),
    }),
  ),
  tables: z.array(
    z.object({
      table: z.string(),
      bytes: z.number().describe('With indexes'),
      rows: z.number().describe('Estimated'),
      deadRows: z.number().describe('Estimated; vacuum removes them'),
    }),
  ),
  presentBodyTable: z.string().nullable().describe('The one of them that new messages go to'),
  oldestSnapshot: z
    .object({
      seconds: z.number().nullable(),
      transactions: z.number().describe('That have begun since'),
      holder: z.string(),
    })
    .nullable()
    .describe('What keeps vacuum from removing dead rows'),
  slots: z.array(
    z.object({
      name: z.string(),
      kind: z.string(),
      active: z.boolean(),
      keptBytes: z.number().nullable().describe('Of the log that the server keeps for it'),
    }),
  ),
});

export const ClusterAnswer = z.object({
  configured: z.boolean().describe('Whether this server is a node of a cluster'),
  node: z.string().nullable().describe('The one that answers'),
  fault: z.string().nullable().describe('Why the database does not answer'),
  differs: z.array(z.enum(['version', 'schema'])).describe('What living nodes have different values of'),
  divided: z.string().nullable().describe('Why mail of one user may lie on several nodes'),
  nodes: z.array(NodeAnswer),
  configuration: z
    .object({
      set: z.int(),
      at: z.iso.datetime(),
      by: z.string().nullable(),
      stopped: z.object({ node: z.string(), why: z.string() }).nullable().describe('Who could not apply it'),
    })
    .nullable()
    .describe('The set of configuration files in use'),
  database: DatabaseAnswer.nullable(),
});
export type ClusterAnswer = z.output<typeof ClusterAnswer>;

export const noCluster: ClusterAnswer = {
  configured: false,
  node: null,
  fault: null,
  differs: [],
  divided: null,
  nodes: [],
  configuration: null,
  database: null,
};

interface AnswerInput {
  readonly ask: Ask;
  /** The server of the database in use. */
  readonly host: string;
  /** Name of this node. */
  readonly node: string;
  readonly sessionSeconds: number;
}

/** Nodes and database, as the database says it now. */
export async function readCluster({ ask, host, node, sessionSeconds }: AnswerInput): Promise<ClusterAnswer> {
  const nodes = await readNodes(ask, sessionSeconds);
  const database = await readDatabase(ask, host);
  const { current, nodes: sets } = await readSets(ask);
  return {
    configured: true,
    node,
    fault: null,
    differs: [...differences(nodes)],
    divided: dividedMail(nodes.filter(({ state }) => state !== 'dead')) ?? null,
    nodes: nodes.map((one) => ({
      ...one,
      mailboxes: one.mailboxes?.mode ?? null,
      own: one.node === node,
      clockIsOff: Math.abs(one.clockAheadSeconds ?? 0) > clockPlaySeconds,
      configuration: setOf(sets.find(({ node: name }) => name === one.node)),
    })),
    configuration: current && { set: current.number, at: current.at, by: current.by, stopped: current.stopped },
    database: {
      ...database,
      standbys: [...database.standbys],
      tables: [...database.tables],
      slots: [...database.slots],
    },
  };
}

const setOf = (one: NodeSet | undefined): ClusterAnswer['nodes'][number]['configuration'] => ({
  set: one?.number ?? null,
  state: one?.state ?? 'none',
  why: one?.why ?? null,
});
