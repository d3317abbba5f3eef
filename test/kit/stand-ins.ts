import type { Timers } from '../../core/clock.js';
import { directory, type Directory, type MailUser } from '../../core/contracts/directory.js';
import { queue as queueService } from '../../core/contracts/mail-queue.js';
import { mailboxes } from '../../core/contracts/mailboxes.js';
import { type Address, parseAddress } from '../../core/mime/address.js';
import { definePlugin, type Plugin } from '../../core/plugin.js';
import type { Service } from '../../core/contracts/service.js';
import { accept, next, reject, route } from '../../core/pipeline/verdict.js';

import type { DeliveredMail } from './delivered-mail.js';
import { MemoryMailboxes } from './memory-mailboxes.js';
import { queueStandIn } from './memory-queue.js';

/** The password of every mail user. */
export const userPassword = 'password';

export interface StandInInput {
  readonly domains: readonly string[];
  /** The mailboxes that there are; every one of the domains if absent. */
  readonly users: readonly string[] | undefined;
  /** Names of plugins and ids of services that the test brings itself. */
  readonly taken: ReadonlySet<string>;
  /** Where mail is noted that arrives. */
  readonly delivered: DeliveredMail[];
  readonly timers: Timers;
}

/**
 * What stands where the built-in plugins `users`, `store` and `client-queue` stand in a server: under their names, so that `before` and
 * `after` mean the same, with the same answers, and with mailboxes in memory.
 */
export function standIns(input: StandInInput): readonly Plugin[] {
  const { taken } = input;
  const queue = queueStandIn({ ...input, isTaken: taken.has(queueService.id) });
  return [usersStandIn(input), storeStandIn(input), queue].filter(({ name }) => !input.taken.has(name));
}

function usersStandIn(input: StandInInput): Plugin {
  const known = new KnownUsers(input);
  return definePlugin({
    name: 'users',
    provides: unlessTaken(input, { directory }),
    setup({ smtp }) {
      smtp.on('auth', async ({ username, password }) => {
        const user = await known.authenticate(username, password);
        return user === undefined ? next() : accept({ username: user.username });
      });
      smtp.on('rcptTo', { order: 'route', after: '*' }, ({ address }) => {
        if (!input.domains.includes(address.domain)) return next();
        const user = known.resolve(address);
        if (user === undefined) return refusedUser(address);
        return route({ target: 'mailbox', destination: user.username });
      });
      return { directory: known };
    },
  });
}

function storeStandIn(input: StandInInput): Plugin {
  return definePlugin({
    name: 'store',
    provides: unlessTaken(input, { mailboxes }),
    setup({ clock }) {
      return { mailboxes: new MemoryMailboxes(input.delivered, () => clock.now()) };
    },
  });
}

function unlessTaken<S extends Readonly<Record<string, Service<unknown>>>>({ taken }: StandInInput, services: S): S {
  return Object.fromEntries(Object.entries(services).filter(([, { id }]) => !taken.has(id))) as S;
}

/** Letters of a name count as equal in either case, and `anna+list@…` is anna, as in `users`. */
class KnownUsers implements Directory {
  readonly source = 'test';
  readonly #domains: readonly string[];
  readonly #users: readonly string[] | undefined;

  constructor({ domains, users }: Pick<StandInInput, 'domains' | 'users'>) {
    this.#domains = domains;
    this.#users = users?.map((user) => lowerCase(parseAddress(user).address));
  }

  resolve(address: Address): MailUser | undefined {
    const name = lowerCase(address.address);
    const known = this.#users === undefined ? this.#anybody(name, address) : this.#listed(name);
    if (known === undefined) return undefined;
    return { username: known, address: parseAddress(known), aliases: [], quota: null, disabled: false };
  }

  find(username: string): MailUser | undefined {
    return this.resolve(parseAddress(username));
  }

  list(): Promise<readonly MailUser[]> {
    return Promise.resolve((this.#users ?? []).flatMap((user) => this.find(user) ?? []));
  }

  authenticate(username: string, password: string): Promise<MailUser | undefined> {
    return Promise.resolve(password === userPassword && username.includes('@') ? this.find(username) : undefined);
  }

  #anybody(name: string, { domain }: Address): string | undefined {
    return this.#domains.includes(domain) ? name : undefined;
  }

  #listed(name: string): string | undefined {
    return [name, name.replace(/\+[^@]*(?=@)/, '')].find((one) => this.#users?.includes(one));
  }
}

const lowerCase = (text: string): string => text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());

/** What old hosts took for a route is refused with other words (RFC 5321 §3.3). */
const refusedUser = ({ local }: Address) =>
  /[%!@]/.test(local) ? reject(550, '5.7.1', 'Relaying denied') : reject(550, '5.1.1', 'No such user here');
