import type { Logger } from 'pino';

/** The structured log. Fields first, then a sentence: `log.info({session: id}, 'connected')`. */
export type Log = Pick<Logger, 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal'> & {
  child(fields: Readonly<Record<string, unknown>>): Log;
};
