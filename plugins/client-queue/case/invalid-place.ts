import { type InvalidPlace, isProblem, problem } from '../../../core/problem.js';

/** Reads a part of a case. @throws Problem `invalid` with the place of the part */
export function at<T>(pointer: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!isProblem(error)) throw error;
    throw problem('invalid', { detail: `${pointer}: ${error.message}`, errors: [{ pointer, message: error.message }] });
  }
}

/** What is wrong in each of them. */
export function wrongPlaces(reads: readonly (() => unknown)[]): readonly InvalidPlace[] {
  return reads.flatMap((read) => {
    try {
      read();
      return [];
    } catch (error) {
      if (!isProblem(error) || error.problem !== 'invalid') throw error;
      return error.details.errors ?? [];
    }
  });
}
