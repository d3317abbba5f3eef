import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { advice, fine, trouble, type Finding } from '../../core/contracts/doctor-check.js';
import { pluralize } from '../../core/text/format.js';
import { isPrivateAddress } from '../../core/dns/private-address.js';
import { isLoopbackHost } from '../../core/http/request-checks.js';
import type { ConfiguredAccount } from '../../core/http/options.js';
import { takesNoMail } from '../../core/smtp/server/listener-options.js';
import { type CoreCheck, ownerLock, type DoctorContext } from './doctor-context.js';

const shortestPassword = 12;
/** Passwords that attackers try first. */
const guesses =
  /^(?:admin|administrator|root|postern|postmaster|mail|password|passwort|secret|geheim|changeme|letmein|welcome|qwerty|test|guest|\d{1,10})\d{0,4}!?$/i;
/** Largest networks that one owner has: larger relay networks include others. */
const widest = { ipv4: 8, ipv6: 19 };
/** fc00::/7 has the size of private networks. */
const widestPrivate = 7;

export const accessChecks: readonly CoreCheck[] = [
  { group: 'Access', name: 'pages', run: pages },
  { group: 'Access', name: 'public-pages', run: publicPages },
  { group: 'Access', name: 'accounts', run: accounts },
  { group: 'Access', name: 'listeners', run: listeners },
  { group: 'Access', name: 'relay-networks', run: relayNetworks },
];

/** What these checks need. */
type AccessContext = Pick<DoctorContext, 'configuration' | 'env' | 'owner'>;

/** Settings that may admit others by mistake, or that accept passwords and mail in clear text. */
export function exposureFindings({ configuration, env }: Omit<AccessContext, 'owner'>): readonly Finding[] {
  const context: AccessContext = { configuration, env, owner: { state: 'none' } };
  return [pages, publicPages, listeners, relayNetworks]
    .flatMap((look) => look(context))
    .filter(({ state }) => state === 'problem' || state === 'advice');
}

/** The server may have been started with a variable that is not set here. */
const unlessGiven = 'unless POSTERN_ADMIN_PASSWORD is set where the server starts';

function hasChosen({ configuration, env }: AccessContext): boolean {
  return (configuration.settings.http.accounts ?? []).length > 0 || (env['POSTERN_ADMIN_PASSWORD'] ?? '') !== '';
}

/** Accounts are in the database of a cluster, which its own check looks at. */
const hasShared = ({ configuration }: AccessContext): boolean =>
  z.object({ database: z.object({}) }).safeParse(configuration.options.get('cluster')).success;

function pages(context: AccessContext): readonly Finding[] {
  const { host, publicUrls, socket } = context.configuration.settings.http;
  if (socket !== undefined) {
    const is = `The socket ${socket} of the pages comes from the service manager, which says who reaches it.`;
    return [...unchosen(context, `http.socket ${socket}`), fine(is)];
  }
  if (isLoopbackHost(host)) return [fine(`The pages listen on ${host}: only this machine reaches them.`)];
  const secure = publicUrls.find((url) => url.startsWith('https:'));
  const openness =
    secure === undefined
      ? advice(
          `Other machines may reach the pages (http.host ${host}), where passwords go in clear.`,
          'Listen on 127.0.0.1 behind a proxy that does TLS, and name its address in http.publicUrls.',
        )
      : fine(`The pages listen on ${host}, and browsers come by ${secure}. Let only the proxy reach the port.`);
  return [...unchosen(context, `http.host ${host}`), openness];
}

/** A running server has a password. */
function unchosen(context: AccessContext, place: string): readonly Finding[] {
  if (hasChosen(context) || hasShared(context) || ownerLock(context) !== undefined) return [];
  const is = `Other machines may reach the pages (${place}), and nobody chose who may sign in: the server will not start, ${unlessGiven}.`;
  return [trouble(is, 'Add an account to http.accounts, set POSTERN_ADMIN_PASSWORD, or listen on 127.0.0.1.')];
}

function publicPages({ configuration }: AccessContext): readonly Finding[] {
  const wide = configuration.settings.http.access.filter(
    ({ public: open, match }) =>
      open === true && /^(?:[A-Z]+ )?\/(?:\*.*|(?:users|config|system|logs|store|client|audit)\b.*)$/.test(match),
  );
  if (wide.length === 0) return [];
  const rules = wide.map(({ match }) => JSON.stringify(match)).join(', ');
  return [
    trouble(`Nobody has to sign in for ${rules} (http.access).`, 'Give these rules a role in place of public: true.'),
  ];
}

function accounts(context: AccessContext): readonly Finding[] {
  const { configuration, env } = context;
  const configured: readonly ConfiguredAccount[] = configuration.settings.http.accounts ?? [];
  const given: readonly (readonly [name: string, password: string])[] = [
    ...[...configured, ...configuration.settings.http.access].flatMap(({ username, password }) =>
      username === undefined || password === undefined ? [] : [[username, password] as const],
    ),
    ...(env['POSTERN_ADMIN_PASSWORD'] ? [['admin', env['POSTERN_ADMIN_PASSWORD']] as const] : []),
  ];
  const findings = given.flatMap(([name, password]) => weakness(name, password));
  if (findings.length > 0) return findings;
  if (hasChosen(context))
    return [fine(`${pluralize(Math.max(1, configured.length), 'account')} with a chosen password may sign in.`)];
  if (hasShared(context)) return [fine('Those who may sign in are in the database of the cluster.')];
  if (!existsSync(join(configuration.data, 'accounts.json'))) {
    return [fine(`The first start makes the account admin and shows its password once, ${unlessGiven}.`)];
  }
  const is = `The account admin has the password that was made at the first start, ${unlessGiven}.`;
  return [advice(is, 'If it was not kept: postern account password admin. To choose accounts, use http.accounts.')];
}

/** Never prints the password. */
function weakness(name: string, password: string): readonly Finding[] {
  const todo = 'Choose a long one, made by chance: openssl rand -base64 18';
  const guessable = guesses.test(password) || password.toLowerCase() === name.toLowerCase();
  if (guessable)
    return [trouble(`The password of the account ${name} is a common one that attackers try first.`, todo)];
  if (password.length >= shortestPassword) return [];
  return [advice(`The password of the account ${name} has less than ${shortestPassword} characters.`, todo)];
}

function listeners({ configuration }: AccessContext): readonly Finding[] {
  return configuration.settings.smtp.listeners.map((listener) => {
    const { name, host, mode, tls, allowPlaintextAuth, fd, socket } = listener;
    const outside = fd !== undefined || socket !== undefined || !isLoopbackHost(host);
    const where = fd === undefined && socket === undefined ? host : 'a socket of the service manager';
    if (takesNoMail(listener)) {
      return advice(
        `Nobody can sign in on the listener ${name}: it has no TLS.`,
        'Give it tls with key and cert, or allowPlaintextAuth.',
      );
    }
    if (!outside) return fine(`The listener ${name} is for this machine only (${host}).`);
    if (mode === 'submission' && tls === 'none' && allowPlaintextAuth) {
      return trouble(
        `Passwords of users go in clear to the listener ${name} (${where}).`,
        'Give it tls: "starttls" or "implicit".',
      );
    }
    if (mode === 'lmtp') {
      return advice(
        `The listener ${name} takes mail by LMTP from other machines (${where}), without asking who they are.`,
        'Listen on 127.0.0.1, or let a firewall say who may.',
      );
    }
    if (tls === 'none') {
      return advice(
        `Mail comes to the listener ${name} (${where}) in clear: it offers no TLS.`,
        'Give it tls: "starttls".',
      );
    }
    return fine(`The listener ${name} (${where}) speaks TLS.`);
  });
}

function relayNetworks({ configuration }: AccessContext): readonly Finding[] {
  const { relayNetworks: networks } = configuration.settings.smtp;
  if (networks.length === 0) return [fine('Only users who sign in may send to other servers.')];
  const wide = networks.filter(isWide);
  const list = networks.slice(0, 10).join(', ');
  if (wide.length === 0) return [fine(`${list} may send to other servers without signing in.`)];
  return [
    trouble(
      `${wide.join(', ')} may send to other servers without signing in: that is a large part of the Internet.`,
      'Name your own networks in smtp.relayNetworks.',
    ),
  ];
}

function isWide(network: string): boolean {
  const [address = '', prefix] = network.trim().split('/');
  if (prefix === undefined) return false;
  const bits = Number(prefix);
  if (!address.includes(':')) return bits < widest.ipv4;
  return bits < (isPrivateAddress(address) ? widestPrivate : widest.ipv6);
}
