import { z } from 'zod';
import { pluralize } from '../text/format.js';
import { startError } from '../problem.js';

/** The name of one, as an option: printable ASCII without colons (systemd.socket(5)). */
export const SocketName = z
  .string()
  .regex(/^[\x21-\x39\x3b-\x7e]{1,255}$/, 'must be a name as FileDescriptorName= of a socket unit has it')
  .describe('Name of a socket that the service manager hands over (systemd); host and port are not used.')
  .meta({ examples: ['smtp'] });

/** The first descriptor that a service manager hands over (sd_listen_fds(3)). */
const firstDescriptor = 3;
const maxSockets = 1000;

/** Service whose socket is looked up: by the name in its unit, or by descriptor. */
interface Claim {
  readonly socket?: string | undefined;
  readonly fd?: number | undefined;
}

interface HandedOver {
  /** Names of the descriptors from `firstDescriptor` on, in order. */
  readonly names: readonly string[];
  /** Why there is no socket of some name. */
  readonly why: string;
}

/**
 * Listening sockets passed by a service manager, which keeps them open and describes them in `LISTEN_PID`, `LISTEN_FDS`
 * and `LISTEN_FDNAMES` (sd_listen_fds_with_names(3)).
 */
export class InheritedSockets {
  static readonly none = new InheritedSockets({}, 0);
  readonly #handedOver: HandedOver;

  constructor(env: Readonly<Record<string, string | undefined>>, pid: number) {
    this.#handedOver = handedOver(env, pid);
  }

  /** The descriptor of the only socket of that name. Throws a start error; `who` begins its sentence. */
  find(name: string, who: string): number {
    const { names, why } = this.#handedOver;
    const first = names.indexOf(name);
    if (first < 0) throw startError(`${who} cannot take the socket ${name}: ${why}.`);
    if (names.lastIndexOf(name) !== first) {
      throw startError(
        `${who} cannot take the socket ${name}: more than one was handed over under that name; put each in a socket unit of its own, with its own FileDescriptorName=.`,
      );
    }
    return firstDescriptor + first;
  }

  /** A client of an unused socket would wait for ever. Throws a start error. */
  refuseUnclaimed(claims: readonly Claim[]): void {
    const idle = this.#handedOver.names.filter(
      (name, index) => !claims.some(({ socket, fd }) => socket === name || fd === firstDescriptor + index),
    );
    if (idle.length === 0) return;
    throw startError(
      `Nothing takes what the service manager hands over: ${listOf(idle)}. Add socket: ${JSON.stringify(idle[0])} to a listener (or to http), or stop that socket unit.`,
    );
  }
}

function handedOver(env: Readonly<Record<string, string | undefined>>, pid: number): HandedOver {
  const { LISTEN_PID: owner, LISTEN_FDS: count, LISTEN_FDNAMES: text } = env;
  if (count === undefined) return nothing('no service manager has handed over any; start it by its socket unit');
  if (owner !== `${pid}`) {
    return nothing(
      `what was handed over is for process ${owner ?? 'nobody'}, and this is ${pid}; start postern itself, not through npm or a shell`,
    );
  }
  const number = /^\d{1,4}$/.test(count) ? Number(count) : Infinity;
  if (number > maxSockets) return nothing(`LISTEN_FDS=${JSON.stringify(count)} is no number of sockets`);
  const names = text?.split(':') ?? Array.from({ length: number }, () => 'unknown');
  if (names.length !== number)
    return nothing(`LISTEN_FDNAMES has ${pluralize(names.length, 'name')} for ${pluralize(number, 'socket')}`);
  return { names, why: `the service manager hands over ${listOf(names)}; FileDescriptorName= in its unit names it` };
}

function nothing(why: string): HandedOver {
  return { names: [], why };
}

function listOf(names: readonly string[]): string {
  return names.map((name) => JSON.stringify(name)).join(', ') || 'nothing';
}
