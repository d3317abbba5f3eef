import dgram from 'node:dgram';
import dns from 'node:dns';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';

/**
 * Disconnects this process from the network: every attempt fails as if the network were down. A plugin that is only
 * checked must not contact others.
 *
 * @param tried is called with each attempt: `connect to example.com:443`
 */
export function closeNetwork(tried: (what: string) => void): void {
  const down = (what: string): Error => {
    tried(what);
    return Object.assign(new Error(`${what}: there is no network while a plugin is checked`), { code: 'ENETUNREACH' });
  };
  Object.assign(net.Socket.prototype, {
    connect(this: net.Socket, ...args: readonly unknown[]): net.Socket {
      return this.destroy(down(`connect to ${placeOf(args)}`));
    },
  });
  Object.assign(net.Server.prototype, {
    listen(this: net.Server, ...args: readonly unknown[]): net.Server {
      process.nextTick(() => this.emit('error', down(`listen on ${placeOf(args)}`)));
      return this;
    },
  });
  const refuseDatagram = function (this: dgram.Socket): dgram.Socket {
    process.nextTick(() => this.emit('error', down('send or receive datagrams')));
    return this;
  };
  Object.assign(dgram.Socket.prototype, { bind: refuseDatagram, connect: refuseDatagram, send: refuseDatagram });
  closeDns(down);
}

function closeDns(down: (what: string) => Error): void {
  const called = (...args: readonly unknown[]): void => {
    const [name, callback] = [args[0], args.at(-1)];
    const error = down(`ask the DNS for ${String(name)}`);
    if (typeof callback === 'function') process.nextTick(callback, error);
  };
  const promised = (name: unknown): Promise<never> => Promise.reject(down(`ask the DNS for ${String(name)}`));
  replaceQuestions(dns, called);
  replaceQuestions(dns.Resolver.prototype, called);
  replaceQuestions(dns.promises, promised);
  replaceQuestions(dns.promises.Resolver.prototype, promised);
  syncBuiltinESMExports();
}

function replaceQuestions(asked: object, answer: (...args: readonly unknown[]) => unknown): void {
  for (const name of Object.getOwnPropertyNames(asked)) {
    if (/^(resolve|lookup|reverse)/.test(name)) Object.assign(asked, { [name]: answer });
  }
}

/** From the arguments of `connect` and `listen`, also in Node's normalised form. */
function placeOf(args: readonly unknown[]): string {
  const [first, second]: readonly unknown[] = Array.isArray(args[0]) ? (args[0] as readonly unknown[]) : args;
  if (typeof first === 'number') return `${typeof second === 'string' ? second : 'localhost'}:${first}`;
  if (typeof first !== 'object' || first === null) return String(first);
  const { host = 'localhost', port, path } = first as Readonly<Record<string, unknown>>;
  return typeof path === 'string' && port === undefined ? path : `${String(host)}:${String(port)}`;
}
