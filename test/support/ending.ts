import { after } from 'node:test';

/** What of a test or suite context is needed to tidy up after it. */
export interface Ending {
  after(release: () => void | Promise<void>): void;
}

const releases = new WeakMap<Ending, (() => void | Promise<void>)[]>();

/** Runs `release` when the test has ended, the last registered first: a server stops before its folder goes. */
export function atEnd(test: Ending, release: () => void | Promise<void>): void {
  const registered = releases.get(test);
  if (registered !== undefined) {
    registered.push(release);
    return;
  }
  const stack = [release];
  releases.set(test, stack);
  test.after(async () => {
    for (let next = stack.pop(); next !== undefined; next = stack.pop()) await next();
  });
}

/** For a suite: called while the suite is declared, because `after` inside of `before` would belong to that hook. */
export function suiteEnding(): Ending {
  const stack: (() => void | Promise<void>)[] = [];
  after(async () => {
    for (let next = stack.pop(); next !== undefined; next = stack.pop()) await next();
  });
  return { after: (release) => void stack.push(release) };
}
