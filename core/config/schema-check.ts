import { z } from 'zod';

/**
 * As `safeParse`, without the program that it writes for a schema: what is checked once is checked sooner by hand. A schema that throws, or that
 * wants to be asked asynchronously, is a mistake like any other.
 */
export function checkAgainst<S extends z.ZodType>(schema: S, value: unknown): z.ZodSafeParseResult<z.output<S>> {
  try {
    return schema.safeParse(value, { jitless: true });
  } catch (error) {
    const why = `its schema cannot check it: ${error instanceof Error ? error.message : String(error)}`;
    return z.custom<z.output<S>>(() => false, why).safeParse(value);
  }
}
