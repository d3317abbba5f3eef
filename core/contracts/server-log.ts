import { service } from '../host/service.js';

/** The server's own log, to be read: files of JSON lines, and each line as it comes. */
export interface ServerLog {
  /** Absolute. */
  readonly folder: string;
  /** Names of its files, oldest first. */
  files(): Promise<readonly string[]>;
  /** Everything said so far is in the files, or the disk has refused it. */
  flush(): Promise<void>;
  /** Tells every line from now on, one JSON object without a line end; the answer ends it. */
  subscribe(listener: (line: string) => void): () => void;
}
export const serverLog = service<ServerLog>('postern.log');
