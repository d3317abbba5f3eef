/** Owners of the built-in folders in the data folder, also while their plugin is disabled. */
export const folderOwners: Readonly<Record<string, string>> = {
  acme: 'acme',
  cache: 'store',
  'client-uploads': 'client-queue',
  config: 'the server',
  drafts: 'store',
  heapdumps: 'monitoring',
  idempotency: 'the server',
  logs: 'the server',
  mail: 'store',
  queue: 'client-queue',
  'sign-ins': 'the server',
  spool: 'the server',
  'spool-log': 'the server',
  trace: 'trace',
  traffic: 'monitoring',
  uploads: 'the server',
};
