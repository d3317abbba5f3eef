import { z } from 'zod';
import { sqlState } from '../../../core/contracts/cluster.js';

interface Waiting<T, R> {
  readonly item: T;
  readonly resolve: (result: R) => void;
  readonly reject: (error: unknown) => void;
}

interface BatchInput<T, R> {
  /** Batches that run at a time. */
  readonly concurrent: number;
  readonly maxItems: () => number;
  readonly maxWeight?: number;
  readonly weightOf?: (item: T) => number;
  /** Told after a batch that went well; `begun` by `performance.now()`. */
  readonly done?: ((items: number, begun: number) => void) | undefined;
  /** Results in the order of the items. When it rejects, all of them are refused. */
  readonly run: (items: readonly T[]) => Promise<readonly R[]>;
}

/** Items that come while others are being written go together: nothing waits for more to come. */
export class Batches<T, R> {
  readonly #input: BatchInput<T, R>;
  #waiting: Waiting<T, R>[] = [];
  #running = 0;
  #idle: (() => void)[] = [];

  constructor(input: BatchInput<T, R>) {
    this.#input = input;
  }

  get size(): number {
    return this.#waiting.length;
  }

  /** Of those that wait. */
  get weight(): number {
    const { weightOf = () => 0 } = this.#input;
    return this.#waiting.reduce((sum, { item }) => sum + weightOf(item), 0);
  }

  add(item: T): Promise<R> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      // What comes in the same turn of the event loop goes together.
      if (this.#running < this.#input.concurrent) setImmediate(() => void this.#run());
    });
  }

  /** Resolves when nothing waits and nothing runs. */
  async idle(): Promise<void> {
    if (this.#running + this.#waiting.length > 0) await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  async #run(): Promise<void> {
    if (this.#running >= this.#input.concurrent) return;
    const batch = this.#next();
    if (batch.length === 0) return;
    this.#running += 1;
    const begun = performance.now();
    try {
      const results = await this.#input.run(batch.map(({ item }) => item));
      this.#input.done?.(batch.length, begun);
      batch.forEach(({ resolve, reject }, index) => {
        const result = results[index];
        if (result === undefined) reject(new Error('a batch has no result for one of its items'));
        else resolve(result);
      });
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
    this.#running -= 1;
    if (this.#waiting.length > 0) void this.#run();
    else if (this.#running === 0) for (const resolve of this.#idle.splice(0)) resolve();
  }

  #next(): readonly Waiting<T, R>[] {
    const { maxItems, maxWeight = Infinity, weightOf = () => 0 } = this.#input;
    let weight = 0;
    let count = 0;
    for (const { item } of this.#waiting) {
      weight += weightOf(item);
      if (count >= maxItems() || (count > 0 && weight > maxWeight)) break;
      count += 1;
    }
    return this.#waiting.splice(0, count);
  }
}

/** What the content of a message is to blame for: data, constraints, limits of the program. */
export const refusesContent = (error: unknown): boolean => /^(22|23|54)/.test(sqlState(error) ?? '');

/** A row that is damaged, or whose content this program does not know, is to blame. The others can be worked on without it. */
export const isOfOneRow = (error: unknown): boolean =>
  refusesContent(error) ||
  /^XX00[12]$/.test(sqlState(error) ?? '') ||
  [z.ZodError, SyntaxError, TypeError, RangeError].some((kind) => error instanceof kind);

/** Works on all items together; on fewer and fewer while one of them makes the work fail, which has the result of `refused`. */
export async function withoutBadRows<T, R>(
  items: readonly T[],
  work: (items: readonly T[]) => Promise<readonly R[]>,
  refused: (item: T, error: unknown) => Promise<R>,
): Promise<readonly R[]> {
  try {
    return await work(items);
  } catch (error) {
    const [first] = items;
    if (first === undefined || !isOfOneRow(error)) throw error;
    if (items.length === 1) return [await refused(first, error)];
    const middle = Math.ceil(items.length / 2);
    return [
      ...(await withoutBadRows(items.slice(0, middle), work, refused)),
      ...(await withoutBadRows(items.slice(middle), work, refused)),
    ];
  }
}
