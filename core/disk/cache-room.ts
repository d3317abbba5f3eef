/** For an LRU cache that takes its room as it fills: with `max` it takes the room of all entries when it is made. */
export const cacheSize = (entries: number) => ({ maxSize: entries, sizeCalculation: () => 1 }) as const;
