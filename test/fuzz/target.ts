import type { IAsyncPropertyWithHooks, IPropertyWithHooks } from 'fast-check';

/** Something that is fed at random, with what must hold of it whatever it is fed. */
export interface FuzzTarget {
  readonly name: string;
  /** Runs that take about a second. */
  readonly quickRuns: number;
  readonly property: IPropertyWithHooks<unknown[]> | IAsyncPropertyWithHooks<unknown[]>;
}
