import { type Address, parseAddress, parseDomain } from '../../../core/mime/address.js';
import { nameOf, type LmtpSettings, type RouteSettings } from './options.js';

export interface LmtpRoute {
  readonly name: string;
  readonly settings: RouteSettings;
}

/** Which route a recipient takes: that of the user, else that of the domain. */
export class RouteTable {
  readonly routes: readonly LmtpRoute[];
  readonly #byUser = new Map<string, LmtpRoute>();
  readonly #byDomain = new Map<string, LmtpRoute>();

  constructor({ routes }: LmtpSettings) {
    this.routes = routes.map((settings, index) => ({ name: nameOf(settings, index), settings }));
    for (const route of this.routes) {
      for (const user of route.settings.users) keep(this.#byUser, userKey(parseAddress(user)), route);
      for (const domain of route.settings.domains) keep(this.#byDomain, parseDomain(domain), route);
    }
  }

  find(address: Address): LmtpRoute | undefined {
    return this.ofUser(address) ?? this.#byDomain.get(address.domain);
  }

  /** The route that names this user. */
  ofUser(address: Address): LmtpRoute | undefined {
    return this.#byUser.get(userKey(address));
  }

  /** True when a route names users: an alias may lead to one of them. */
  get namesUsers(): boolean {
    return this.#byUser.size > 0;
  }
}

const userKey = ({ address }: Address): string => address.toLowerCase();

/** The first one counts. */
function keep(map: Map<string, LmtpRoute>, key: string, route: LmtpRoute): void {
  if (!map.has(key)) map.set(key, route);
}
