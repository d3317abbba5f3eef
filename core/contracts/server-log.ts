import { service } from './service.js';

/** The server's own log for readers: files of JSON lines, and each line as it is written. */
export interface ServerLog {
  /** Absolute. */
  readonly folder: string;
  /** Names of its files, oldest first. */
  files(): Promise<readonly string[]>;
  /** All earlier lines are in the files, or the disk refused them. */
  flush(): Promise<void>;
  /** Emits every further line, one JSON object without a line end. Returns the undo. */
  subscribe(listener: (line: string) => void): () => void;
}
export const serverLog = service<ServerLog>('postern.log');
