/** Why the server cannot start or a command cannot run, as a sentence that says what to do. Shown without a stack. */
export interface StartError extends Error {
  readonly postern: 'start-error';
}

export function startError(sentence: string, cause?: unknown): StartError {
  return Object.assign(new Error(sentence, { cause }), { name: 'StartError', postern: 'start-error' } as const);
}

export function isStartError(value: unknown): value is StartError {
  return value instanceof Error && (value as Partial<StartError>).postern === 'start-error';
}
