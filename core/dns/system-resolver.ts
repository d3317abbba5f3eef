import { Resolver as NodeResolver } from 'node:dns/promises';
import { isIP, isIPv6 } from 'node:net';
import { z } from 'zod';
import { problem } from '../problem.js';
import {
  type DnsResponse,
  dnsFailure,
  type DnsFailureKind,
  type LookupOptions,
  type MxRecord,
  type Resolver,
} from './resolver.js';

export interface SystemResolverOptions {
  /** Name servers as `192.0.2.1`, `192.0.2.1:5353`, `2001:db8::1` or `[2001:db8::1]:5353`; the system's when empty. */
  readonly servers?: readonly string[];
  /** Timeout of one try, and the number of tries for each server. */
  readonly timeoutMs?: number;
  readonly tries?: number;
  /** Timeout of a query with all its tries. */
  readonly totalMs?: number;
}

const kinds: Readonly<Record<string, DnsFailureKind>> = {
  ENOTFOUND: 'nxdomain',
  EBADNAME: 'nxdomain',
  ENODATA: 'nodata',
  ETIMEOUT: 'timeout',
  ECANCELLED: 'aborted',
};

/**
 * Queries name servers over UDP, and over TCP where an answer is truncated. Uses neither /etc/hosts nor the thread pool
 * of `dns.lookup`.
 */
export class SystemResolver implements Resolver {
  readonly #resolver: NodeResolver;
  readonly #totalMs: number;

  /** @throws Problem `invalid` when a server is no IP address with or without a port */
  constructor({ servers = [], timeoutMs = 3000, tries = 2, totalMs = 15_000 }: SystemResolverOptions = {}) {
    this.#resolver = new NodeResolver({ timeout: timeoutMs, tries });
    this.#totalMs = totalMs;
    if (servers.length > 0) this.#resolver.setServers(servers.map(serverAddress));
  }

  resolveMx(name: string, options?: LookupOptions): Promise<DnsResponse<MxRecord>> {
    return this.#ask(`MX ${name}`, options, async () =>
      withoutTtl(
        (await this.#resolver.resolveMx(name)).map(({ exchange, priority }) => ({
          exchange: bareName(exchange),
          preference: priority,
        })),
      ),
    );
  }

  resolve4(name: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#ask(`A ${name}`, options, async () => addresses(await this.#resolver.resolve4(name, { ttl: true })));
  }

  resolve6(name: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#ask(`AAAA ${name}`, options, async () =>
      addresses(await this.#resolver.resolve6(name, { ttl: true })),
    );
  }

  resolveTxt(name: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#ask(`TXT ${name}`, options, async () =>
      withoutTtl((await this.#resolver.resolveTxt(name)).map((pieces) => pieces.join(''))),
    );
  }

  resolvePtr(address: string, options?: LookupOptions): Promise<DnsResponse<string>> {
    return this.#ask(`PTR ${address}`, options, async () =>
      withoutTtl((await this.#resolver.reverse(address)).map(bareName)),
    );
  }

  #ask<T>(
    question: string,
    options: LookupOptions | undefined,
    ask: () => Promise<DnsResponse<T>>,
  ): Promise<DnsResponse<T>> {
    const signal = options?.signal;
    if (signal?.aborted === true) return Promise.reject(dnsFailure('aborted', question));
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', aborted);
      };
      const fail = (kind: DnsFailureKind, cause?: unknown): void => {
        settle();
        reject(dnsFailure(kind, question, cause));
      };
      const aborted = (): void => fail('aborted');
      const timer = setTimeout(() => fail('timeout'), this.#totalMs);
      signal?.addEventListener('abort', aborted, { once: true });
      ask().then(
        (answer) => {
          if (answer.records.length === 0) return fail('nodata');
          settle();
          return resolve(answer);
        },
        (error: unknown) => fail(kindOf(error), error),
      );
    });
  }
}

/** Every other error is a failure of the server. */
function kindOf(error: unknown): DnsFailureKind {
  const code = (error as NodeJS.ErrnoException | undefined)?.code ?? '';
  return kinds[code] ?? 'servfail';
}

export const bareName = (name: string): string => name.toLowerCase().replace(/\.$/, '');

function withoutTtl<T>(records: readonly T[]): DnsResponse<T> {
  return { records, ttl: undefined };
}

function addresses(found: readonly { readonly address: string; readonly ttl: number }[]): DnsResponse<string> {
  return { records: found.map(({ address }) => address), ttl: Math.min(...found.map(({ ttl }) => ttl)) };
}

/** Whether a text names a server in a form that `SystemResolverOptions` allows. */
const isNameServer = (text: string): boolean => placeOf(text) !== undefined;

/** The form that node:dns expects. @throws Problem `invalid` */
export function serverAddress(text: string): string {
  const place = placeOf(text);
  if (place !== undefined) return place;
  throw problem('invalid', `A name server is an IP address, perhaps with a port: ${JSON.stringify(text.slice(0, 80))}`);
}

function placeOf(text: string): string | undefined {
  if (isIPv6(text)) return `[${text}]:53`;
  const [, address = '', port = '53'] = /^\[?([0-9A-Fa-f:.]+?)\]?(?::(\d{1,5}))?$/.exec(text) ?? [];
  if (isIP(address) === 0 || Number(port) < 1 || Number(port) > 65_535) return undefined;
  return isIPv6(address) ? `[${address}]:${port}` : `${address}:${port}`;
}

export const nameServer = z
  .string()
  .refine(isNameServer, 'must be an IP address, perhaps with a port: 192.0.2.1, [2001:db8::1]:5353');

/** Name servers that plugins query. */
export const DnsOptions = z.strictObject({
  servers: z
    .array(nameServer)
    .default([])
    .describe(
      'Name servers that plugins and the relay queue ask, "192.0.2.1" or "192.0.2.1:5353"; those of the system when empty. Lists of addresses often refuse public ones. The relay queue may have others: plugins.client-queue.resolver.',
    )
    .meta({ examples: [['192.0.2.1', '192.0.2.2:5353']] }),
});

export type DnsSettings = z.output<typeof DnsOptions>;
