import { Session } from 'node:inspector';
import { parentPort } from 'node:worker_threads';

/** Frames of one stack that are told. */
const MAX_FRAMES = 60;
const SAMPLES = 5;
const EVERY_MS = 20;

interface CallFrame {
  readonly functionName: string;
  readonly location: { readonly scriptId: string; readonly lineNumber: number; readonly columnNumber: number };
}

/** Runs in a worker: stops the main thread for the moment that it takes to read its stack, a few times. */
const session = new Session();
session.connectToMainThread();
/** A session alone does not keep a worker alive. */
const waiting = setInterval(() => undefined, 1000);
const stacks: string[][] = [];
const scripts = new Map<string, string>();

session.on(
  'Debugger.scriptParsed',
  ({ params }: { readonly params: { readonly scriptId: string; readonly url: string } }) => {
    scripts.set(params.scriptId, params.url);
  },
);

session.on('Debugger.paused', ({ params }: { readonly params: { readonly callFrames: readonly CallFrame[] } }) => {
  session.post('Debugger.resume');
  stacks.push(params.callFrames.slice(0, MAX_FRAMES).map(describe));
});

function describe({ functionName, location }: CallFrame): string {
  const { scriptId, lineNumber, columnNumber } = location;
  return `${functionName || '(anonymous)'} (${scripts.get(scriptId) ?? ''}:${lineNumber + 1}:${columnNumber + 1})`;
}

/** A thread that has heard it and runs no JavaScript has nothing to show; one that has not heard it yet is busy. */
function look(taken: number): void {
  if (taken === SAMPLES) finish();
  else session.post('Debugger.pause', () => setTimeout(look, EVERY_MS, taken + 1));
}

function finish(): void {
  clearInterval(waiting);
  session.disconnect();
  parentPort?.postMessage(stacks, []);
}

session.post('Debugger.enable', () => look(0));
