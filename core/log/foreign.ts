import { format } from 'node:util';
import type { Log } from './log.js';

type Write = (entry: unknown, message?: unknown, ...values: readonly unknown[]) => void;

/** What smtp-server and nodemailer take as `logger`. */
export interface ForeignLogger {
  readonly level: (level: string) => void;
  readonly trace: Write;
  readonly debug: Write;
  readonly info: Write;
  readonly warn: Write;
  readonly error: Write;
  readonly fatal: Write;
}

/**
 * Our log for libraries that write `log.info({…}, 'C: %s', line)` or leave out the placeholders: pino would drop
 * values without one.
 */
export function foreignLogger(log: Log): ForeignLogger {
  const write =
    (level: Exclude<keyof ForeignLogger, 'level'>): Write =>
    (entry, message, ...values) => {
      const fields = typeof entry === 'object' && entry !== null ? entry : {};
      const said = fields === entry ? [message, ...values] : [entry, message, ...values];
      log[level](fields, format(...said.filter((part) => part !== undefined)));
    };
  return {
    level: () => undefined,
    trace: write('trace'),
    debug: write('debug'),
    info: write('info'),
    warn: write('warn'),
    error: write('error'),
    fatal: write('fatal'),
  };
}
