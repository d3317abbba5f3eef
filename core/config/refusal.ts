import type { InvalidPlace } from '../problem.js';
import { startError, type StartError } from '../cli/start-error.js';
import { printComplaint, type Complaint } from './complaint.js';
import type { KeyPath } from './positions.js';

/** A configuration that was not taken: its sentence for a terminal, and its mistakes one by one. */
export interface Refusal extends StartError {
  readonly places: readonly InvalidPlace[];
}

export function refusal(complaints: readonly Complaint[], file: string | null): Refusal {
  const places = complaints.map((complaint) => ({
    pointer: pointerOf(complaint.key),
    message: printComplaint(complaint, file),
  }));
  return Object.assign(startError(places.map(({ message }) => message).join('\n')), { places });
}

/** The mistakes that a start error tells; one that knows no keys is one mistake of the whole. */
export function placesOf(error: StartError, key: KeyPath = ''): readonly InvalidPlace[] {
  return 'places' in error ? (error as Refusal).places : [{ pointer: pointerOf(key), message: error.message }];
}

/** RFC 6901. */
export const pointerOf = (key: KeyPath): string =>
  key === ''
    ? ''
    : `/${key
        .split('.')
        .map((step) => step.replaceAll('~', '~0').replaceAll('/', '~1'))
        .join('/')}`;
