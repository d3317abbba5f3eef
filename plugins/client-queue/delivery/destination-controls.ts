import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { Clock } from '../../../core/clock.js';
import type { StoredDocument } from '../../../core/contracts/cluster.js';
import { type Document, openStoredDocument } from '../../../core/disk/document.js';
import { problem } from '../../../core/problem.js';

/** Maximum number of controlled destinations. */
const maxControls = 10_000;

const Control = z.strictObject({
  suspendedUntil: z.number().nullable().default(null),
  reason: z.string().max(500).nullable().default(null),
  maxConnections: z.int().min(0).max(10_000).nullable().default(null),
  ratePerMinute: z.int().min(1).nullable().default(null),
  by: z.string().nullable().default(null),
  at: z.number().default(0),
});
const Stored = z.strictObject({ destinations: z.record(z.string(), Control) });
type Stored = z.output<typeof Stored>;

/** What an operator set for a destination. Null: as configured. */
export interface DestinationControl {
  /** Milliseconds since the epoch; `Infinity` until resumed, null when not suspended. */
  readonly suspendedUntil: number | null;
  readonly reason: string | null;
  readonly maxConnections: number | null;
  readonly ratePerMinute: number | null;
}

/** Who set it, and when. */
export interface RecordedControl extends DestinationControl {
  readonly destination: string;
  readonly by: string | null;
  readonly at: number;
}

/** Suspended destinations and limits of single ones; kept over restarts. */
export interface DestinationControls {
  /** The control in force; undefined without one, or after it lapsed. */
  get(destination: string): RecordedControl | undefined;
  /** By destination. */
  list(): readonly RecordedControl[];
  /** Durable when it resolves; absent fields stay. @throws Problem `invalid` for too many destinations */
  set(destination: string, control: Partial<DestinationControl>, by: string | null): Promise<RecordedControl>;
  /** Resets to the configuration. False when there was nothing to reset. */
  clear(destination: string): Promise<boolean>;
  /** Called after each change, also by another server, with the destination. Returns the undo. */
  onChange(listener: (destination: string) => void): () => void;
}

/** @throws a start error when the document is invalid */
export async function openDestinationControls(stored: StoredDocument, clock: Clock): Promise<DestinationControls> {
  const initial: Stored = { destinations: {} };
  return new StoredControls(await openStoredDocument(stored, { schema: Stored, initial }), clock);
}

const nothing: DestinationControl = { suspendedUntil: null, reason: null, maxConnections: null, ratePerMinute: null };

class StoredControls implements DestinationControls {
  readonly #document: Document<Stored>;
  readonly #clock: Clock;
  readonly #listeners = new Set<(destination: string) => void>();
  #from: Stored | undefined;
  #byDestination = new Map<string, RecordedControl>();

  constructor(document: Document<Stored>, clock: Clock) {
    this.#document = document;
    this.#clock = clock;
    document.watch(() => this.#changedElsewhere());
  }

  get(destination: string): RecordedControl | undefined {
    const control = this.#all().get(destinationKey(destination));
    return control === undefined ? undefined : inForce(control, this.#clock.now());
  }

  list(): readonly RecordedControl[] {
    const now = this.#clock.now();
    return [...this.#all().values()]
      .flatMap((control) => inForce(control, now) ?? [])
      .sort((one, other) => (one.destination < other.destination ? -1 : 1));
  }

  async set(destination: string, control: Partial<DestinationControl>, by: string | null): Promise<RecordedControl> {
    const key = destinationKey(destination);
    const at = this.#clock.now();
    let recorded: RecordedControl = { ...nothing, destination: key, by, at };
    await this.#change(key, (controls) => {
      recorded = { ...nothing, ...controls.get(key), ...control, destination: key, by, at };
      if (isNothing(recorded)) controls.delete(key);
      else controls.set(key, recorded);
    });
    return recorded;
  }

  async clear(destination: string): Promise<boolean> {
    const key = destinationKey(destination);
    const found = this.get(key) !== undefined;
    if (this.#all().has(key)) await this.#change(key, (controls) => void controls.delete(key));
    return found;
  }

  onChange(listener: (destination: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async #change(destination: string, change: (controls: Map<string, RecordedControl>) => void): Promise<void> {
    await this.#document.update((stored) => {
      const now = this.#clock.now();
      const controls = new Map<string, RecordedControl>();
      for (const [key, control] of decode(stored)) {
        const current = inForce(control, now);
        if (current !== undefined) controls.set(key, current);
      }
      change(controls);
      if (controls.size > maxControls)
        throw problem('invalid', `More than ${maxControls} destinations are controlled.`);
      return encode(controls);
    });
    for (const listener of this.#listeners) listener(destination);
  }

  #changedElsewhere(): void {
    const before = this.#byDestination;
    const after = this.#all();
    for (const destination of new Set([...before.keys(), ...after.keys()])) {
      if (isDeepStrictEqual(before.get(destination), after.get(destination))) continue;
      for (const listener of this.#listeners) listener(destination);
    }
  }

  /** Rebuilt only when the document was replaced: workers read it at every claim. */
  #all(): ReadonlyMap<string, RecordedControl> {
    if (this.#from !== this.#document.data) {
      this.#from = this.#document.data;
      this.#byDestination = decode(this.#from);
    }
    return this.#byDestination;
  }
}

/** JSON has no infinity; the latest time of a Date replaces it. */
const forever = 8.64e15;

function encode(controls: ReadonlyMap<string, RecordedControl>): Stored {
  const entries = [...controls].map(([key, control]) => {
    const { suspendedUntil: until, reason, maxConnections, ratePerMinute, by, at } = control;
    const suspendedUntil = until === null ? null : Math.min(until, forever);
    return [key, { suspendedUntil, reason, maxConnections, ratePerMinute, by, at }] as const;
  });
  return { destinations: Object.fromEntries(entries) };
}

function decode({ destinations }: Stored): Map<string, RecordedControl> {
  return new Map(
    Object.entries(destinations).map(([destination, control]) => {
      const suspendedUntil = control.suspendedUntil === forever ? Infinity : control.suspendedUntil;
      return [destination, { ...control, destination, suspendedUntil }];
    }),
  );
}

/** A suspension lapses together with its reason; limits stay. */
function inForce(control: RecordedControl, now: number): RecordedControl | undefined {
  if (control.suspendedUntil === null || control.suspendedUntil > now) return control;
  const rest = { ...control, suspendedUntil: null, reason: null };
  return isNothing(rest) ? undefined : rest;
}

function isNothing({ suspendedUntil, maxConnections, ratePerMinute }: DestinationControl): boolean {
  return suspendedUntil === null && maxConnections === null && ratePerMinute === null;
}

export function destinationKey(destination: string): string {
  return destination.toLowerCase();
}
