import { service } from './service.js';

/**
 * What the servers of a cluster share. A plugin provides these services; without one, a server is alone: documents are
 * files, all duties are its own, and limits are not divided.
 */

/** A text with a name, replaced as a whole. */
export interface StoredDocument {
  /** For messages: the path of a file, for example. */
  readonly place: string;
  /** Undefined while there is none. */
  read(): Promise<{ readonly text: string; readonly version: number } | undefined>;
  /**
   * Durable when it resolves with the new version. Resolves with undefined, and changes nothing, when the present
   * version is another one.
   *
   * @param version the one that was read; undefined where there was no document
   */
  replace(text: string, version: number | undefined): Promise<number | undefined>;
  /** Called after another server has changed it. Returns the undo. */
  watch(listener: () => void): () => void;
}

/** Small documents. */
export interface Documents {
  /** @param name `destinations`, `mta-sts` */
  get(name: string): StoredDocument;
}
export const documents = service<Documents>('postern.documents');
