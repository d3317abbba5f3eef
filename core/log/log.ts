import { pino, type Logger } from 'pino';
import type { ServerLog } from '../contracts/server-log.js';
import type { HealthReport } from '../host/health.js';
import { errorFields } from './error-fields.js';
import { listLogFiles, LogFile, type LogFileOptions } from './file.js';
import { tidyLine } from './line.js';
import { prettyLine } from './pretty.js';
import { LineRing, type LogRing } from './ring.js';

/** The structured log. Fields first, then a sentence: `log.info({session: id}, 'connected')`. */
export type Log = Pick<Logger, 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal'> & {
  child(fields: Readonly<Record<string, unknown>>): Log;
};

export const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const;
export type LogLevel = (typeof logLevels)[number];

export interface LogSettings extends LogFileOptions {
  readonly level: LogLevel;
  /** Newest lines kept in memory. */
  readonly ringLines: number;
  /** Also says every line, in a readable form, to a person at the terminal. */
  readonly verbose?: boolean;
  /** Where `verbose` says it; standard error by default. */
  readonly echo?: (text: string) => void;
}

export interface OpenedLog {
  readonly log: Log;
  readonly ring: LogRing;
  /** For those who read it. */
  readonly source: ServerLog;
  /** `degraded` while the disk refuses lines. */
  health(): HealthReport;
  /** Everything said so far is in the file, or the disk has refused it. */
  flush(): Promise<void>;
  /** Flushes and closes the file; later lines go to the ring only. */
  close(): Promise<void>;
}

/**
 * Opens the log: JSON lines to files per day and size, and to a ring in memory. Every line is redacted, bounded and
 * free of control characters. Writing to it never fails and never waits.
 */
export function openLog(settings: LogSettings): OpenedLog {
  const { level, ringLines, verbose = false, clock, echo = (text) => void process.stderr.write(text) } = settings;
  const file = new LogFile(settings);
  const ring = new LineRing(ringLines);
  const write = (raw: string): void => {
    const line = tidyLine(raw);
    file.append(line);
    ring.push(line.slice(0, -1));
    if (verbose) echo(prettyLine(line));
  };
  return {
    log: pino(
      {
        level,
        base: null,
        timestamp: () => `,"time":"${new Date(clock.now()).toISOString()}"`,
        formatters: { level: (label) => ({ level: label }), log: renameReserved },
        serializers: { err: errorFields, error: errorFields, cause: errorFields, reason: errorFields },
      },
      { write },
    ),
    ring,
    source: {
      folder: settings.folder,
      files: () => listLogFiles(settings.folder),
      flush: () => file.flush(),
      subscribe: (listener) => ring.subscribe(listener),
    },
    health: () => file.health(),
    flush: () => file.flush(),
    close: () => file.close(),
  };
}

/** A field of the caller must not stand in for the line's own: readers take the last of two equal names. */
function renameReserved(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  if (!('level' in fields || 'time' in fields || 'msg' in fields)) return fields;
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [/^(?:level|time|msg)$/.test(name) ? `${name}_` : name, value]),
  );
}
