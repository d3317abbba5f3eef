/** Causes followed, and frames kept of each stack. */
const MAX_CAUSES = 4;
const MAX_FRAMES = 12;

/** An error as fields of a log line: what it is, what it says, where it came from, and its causes. */
export function errorFields(value: unknown): unknown {
  return value instanceof Error ? describe(value, 0) : value;
}

function describe(error: Error, depth: number): Readonly<Record<string, unknown>> {
  const { code, syscall, problem } = error as {
    readonly code?: unknown;
    readonly syscall?: unknown;
    readonly problem?: unknown;
  };
  return {
    type: error.name,
    message: error.message,
    ...(plain(code) && { code }),
    ...(plain(syscall) && { syscall }),
    ...(plain(problem) && { problem }),
    ...(typeof error.stack === 'string' && { stack: frames(error.stack) }),
    ...(error.cause !== undefined && { cause: causeOf(error.cause, depth) }),
  };
}

const plain = (value: unknown): boolean => typeof value === 'string' || typeof value === 'number';

function causeOf(cause: unknown, depth: number): unknown {
  if (!(cause instanceof Error)) return typeof cause === 'string' ? cause : typeof cause;
  return depth < MAX_CAUSES ? describe(cause, depth + 1) : cause.message;
}

/** Without the message, which may hold line ends and stands on its own already. */
const frames = (stack: string): string =>
  stack
    .split('\n')
    .filter((line) => /^\s+at /.test(line))
    .slice(0, MAX_FRAMES)
    .map((line) => line.trim())
    .join('\n');
