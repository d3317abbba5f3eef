import { startError } from '../problem.js';
import { phases, type HookOptions, type Phase } from './hook.js';

/** What says where a hook stands. */
export interface PlacedHook extends Pick<HookOptions, 'before' | 'after'> {
  readonly plugin: string;
  readonly phase: Phase;
}

/**
 * The hooks of one stage in the order they are asked: by phase; within it as `before` and `after` say, those with `after: '*'`
 * behind the others; else as they were given. Plugins that are not there are no constraint. A circle is a start error that
 * names those in it.
 */
export function orderHooks<H extends PlacedHook>(hooks: readonly H[]): readonly H[] {
  return phases.flatMap((phase) => orderPhase(hooks.filter((hook) => hook.phase === phase)));
}

function orderPhase<H extends PlacedHook>(hooks: readonly H[]): readonly H[] {
  const ordered: H[] = [];
  const waiting = [...hooks];
  while (waiting.length > 0) {
    const ready = waiting.filter((hook) => !waiting.some((other) => goesBefore(other, hook)));
    const next = ready.find(({ after }) => after !== '*') ?? ready[0];
    if (next === undefined) throw circle(waiting);
    ordered.push(next);
    waiting.splice(waiting.indexOf(next), 1);
  }
  return ordered;
}

/** True when one of the two says so; of its own plugin's hooks a hook says nothing. */
function goesBefore(one: PlacedHook, other: PlacedHook): boolean {
  return one.plugin !== other.plugin && (names(one.before, other.plugin) || names(other.after, one.plugin));
}

function names(plugins: string | readonly string[] | undefined, plugin: string): boolean {
  return plugins === plugin || (Array.isArray(plugins) && plugins.includes(plugin));
}

/** Every one of `waiting` has another in front of it: following those leads round. */
function circle(waiting: readonly PlacedHook[]): Error {
  const trail: PlacedHook[] = [];
  let hook = waiting[0];
  while (hook !== undefined && !trail.includes(hook)) {
    trail.push(hook);
    const behind: PlacedHook = hook;
    hook = waiting.find((other) => goesBefore(other, behind));
  }
  const round = hook === undefined ? trail : trail.slice(trail.indexOf(hook));
  const names = [...new Set(round.map(({ plugin }) => plugin))];
  const list = `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
  return startError(
    `The hooks of ${list} in phase ${waiting[0]?.phase} each want to run before the other: change their before or after.`,
  );
}
