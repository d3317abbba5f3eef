import { type Logger, pino } from 'pino';
import type { ServerLog } from '../contracts/server-log.js';
import type { HealthReport } from '../contracts/health.js';
import { errorFields, prettyLine, sanitizeLine } from './line.js';
import { listLogFiles, LogFile, type LogFileOptions } from './file.js';

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
  /** Also prints every line in a readable form. */
  readonly verbose?: boolean;
  /** Output of `verbose`; standard error by default. */
  readonly echo?: (text: string) => void;
}

export interface OpenedLog {
  readonly log: Log;
  readonly ring: LogRing;
  /** For readers of the log. */
  readonly source: ServerLog;
  /** `degraded` while the file cannot be written. */
  health(): HealthReport;
  /** Resolves when all lines are in the file, or a write has failed. */
  flush(): Promise<void>;
  /** Flushes and closes the file; later lines go to the ring only. */
  close(): Promise<void>;
}

/**
 * Opens the log: JSON lines to files per day and size, and to a ring in memory. Every line is redacted, bounded and
 * free of control characters. Logging never throws and never blocks.
 */
export function openLog(settings: LogSettings): OpenedLog {
  const { level, ringLines, verbose = false, clock, echo = (text) => void process.stderr.write(text) } = settings;
  const file = new LogFile(settings);
  const ring = new LineRing(ringLines);
  const write = (raw: string): void => {
    const line = sanitizeLine(raw);
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

/** A caller's field must not override a field of the line: readers take the last of two equal names. */
function renameReserved(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  if (!('level' in fields || 'time' in fields || 'msg' in fields)) return fields;
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [/^(?:level|time|msg)$/.test(name) ? `${name}_` : name, value]),
  );
}

/** The newest log lines, in memory, and subscriptions to new ones. */
interface LogRing {
  /** Oldest first; each is one JSON object without a line end. */
  lines(): readonly string[];
  /** Calls the listener for every new line; returns the undo. A listener that throws is removed. */
  subscribe(listener: (line: string) => void): () => void;
}

class LineRing implements LogRing {
  readonly #size: number;
  readonly #kept: string[] = [];
  /** Index of the oldest line once the ring is full. */
  #oldest = 0;
  readonly #listeners = new Set<(line: string) => void>();

  /** @param size number of lines */
  constructor(size: number) {
    this.#size = Math.max(1, size);
  }

  push(line: string): void {
    if (this.#kept.length < this.#size) {
      this.#kept.push(line);
    } else {
      this.#kept[this.#oldest] = line;
      this.#oldest = (this.#oldest + 1) % this.#size;
    }
    for (const listener of this.#listeners) this.#tell(listener, line);
  }

  lines(): readonly string[] {
    return [...this.#kept.slice(this.#oldest), ...this.#kept.slice(0, this.#oldest)];
  }

  subscribe(listener: (line: string) => void): () => void {
    // A wrapper, so that one function may subscribe twice.
    const entry = (line: string): void => listener(line);
    this.#listeners.add(entry);
    return () => {
      this.#listeners.delete(entry);
    };
  }

  #tell(listener: (line: string) => void, line: string): void {
    try {
      listener(line);
    } catch {
      this.#listeners.delete(listener);
    }
  }
}
