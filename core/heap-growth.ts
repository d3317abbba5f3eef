import { setFlagsFromString } from 'node:v8';

/**
 * From now on V8 marks all of the heap again when it is three times as large as what the last marking left, which is within the
 * range (1.1 to 4) from which V8 chooses by itself. It chooses 1.1 for a program that promotes little, as this one does, and
 * counts what was read from sockets as heap: every 25 MB of mail made it mark everything, which took longer than receiving it.
 */
export function letHeapGrow(): void {
  setFlagsFromString('--heap-growing-percent=200');
}
