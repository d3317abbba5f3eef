/** Options of an LRU cache that grows as it fills; `max` would allocate for all entries at once. */
export const cacheSize = (entries: number) => ({ maxSize: entries, sizeCalculation: () => 1 }) as const;
