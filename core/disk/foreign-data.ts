import { auditName, logFileName } from '../log/file.js';
import type { Clock } from '../clock.js';
import { isOwnLayerEntry, layerFolderName } from '../config/layer-folder.js';
import { uniqueIdPattern } from './id.js';
import { filesNamed, UnknownEntries, unknownInFolders, type OwnFolders, unknownEntriesOf } from './unknown-entries.js';
import type { HealthRegistry } from '../host/health.js';
import { keptAnswerNames } from '../http/idempotency.js';
import type { Log } from '../log/log.js';

/** What may lie in the data folder itself: documents, the lock, what begins with a dot, and folders of plugins. */
const ownFile = /^(?:\..*|.*\.json|postern\.lock.*)$/;
/** What a test of the disk leaves when it is killed. */
const probeName = /^\.probe-/;

/** The data folder and the server's own folders in it; a plugin watches over its own. */
const folders: OwnFolders = {
  '': (entry) => entry.isDirectory() || ownFile.test(entry.name),
  [layerFolderName]: isOwnLayerEntry,
  idempotency: filesNamed(...keptAnswerNames),
  logs: filesNamed(logFileName, auditName),
  spool: filesNamed(uniqueIdPattern, probeName),
  uploads: filesNamed(uniqueIdPattern, probeName),
};

export interface DataFolderInput {
  readonly data: string;
  readonly health: HealthRegistry;
  readonly clock: Clock;
  readonly log: Log;
}

/** Watches over the data folder; to be looked at first when the leftovers of a dead process are gone. */
export function watchDataFolder({ data, health, clock, log }: DataFolderInput): UnknownEntries {
  const what = unknownEntriesOf('data');
  const foreign = new UnknownEntries({ what, find: () => unknownInFolders(data, folders), clock, log });
  health.check('core', 'data folder', () => foreign.report());
  return foreign;
}
