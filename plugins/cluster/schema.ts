
/** One version of the tables. Released ones never change. */
interface SchemaVersion {
  /** The least version of the tables that a server must be able to work with, to run beside this one. */
  readonly leastReader: number;
  readonly script: string;
}

/** In their order, from version 1. */
export const schemaVersions: readonly SchemaVersion[] = [
  {
    leastReader: 1,
    script: `
create schema postern;

create sequence postern.session_number;
create table postern.session (
  key text primary key,
  node text not null,
  instance text not null,
  beat bigint not null default 0,
  dead boolean not null default false,
  draining boolean not null default false,
  report jsonb not null default '{}',
  joined_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

create table postern.schema (
  version int not null,
  least_reader int not null,
  script_hash text not null,
  applied_at timestamptz not null default clock_timestamp()
);
`,
  },
];
