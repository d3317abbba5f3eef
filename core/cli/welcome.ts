import { isIPv6 } from 'node:net';
import type { LoadedConfiguration } from '../config/load.js';
import { takesNoMail, type ListenerSettings } from '../smtp/server/listener-options.js';

export interface WelcomeContext {
  readonly http: string;
  readonly listeners: readonly { readonly name: string; readonly host: string; readonly port: number }[];
  readonly configuration: LoadedConfiguration;
  /** Generated at the first start; shown once, here. */
  readonly generatedPassword: string | undefined;
  readonly version: string;
  /** Site plugins that were left out, with the reason. */
  readonly failed: readonly { readonly name: string; readonly why: string }[];
  /** Formats a command of this installation: `npx postern … --data /srv/mail`. */
  readonly commandFor: (words: string) => string;
}

/** Text after the start: addresses, folders and next steps. */
export function welcome(input: WelcomeContext): string {
  const { http, listeners, configuration, generatedPassword, version } = input;
  const places: readonly (readonly [label: string, value: string])[] = [
    ['Pages', `${http}/`],
    ...listeners.map(({ name, host, port }) => [`SMTP ${name}`, `${host}:${port}`] as const),
    ['Data', configuration.data],
    ['Settings', configuration.file ?? 'defaults (no postern.json5 here)'],
  ];
  const width = Math.max(...places.map(([label]) => label.length)) + 2;
  return [
    '',
    `  Postern ${version} on ${configuration.hostname}`,
    ...places.map(([label, value]) => `  ${label.padEnd(width)}${value}`),
    ...leftOut(input),
    ...signIn(generatedPassword),
    ...tryIt(input),
    '',
  ].join('\n');
}

function leftOut({ failed, http }: WelcomeContext): readonly string[] {
  if (failed.length === 0) return [];
  return [
    '',
    ...failed.map(({ name, why }) => `  Left out    ${name}: ${why.replaceAll('\n', '\n              ')}`),
    `              Repair it and reload; ${http}/pipeline shows its state.`,
  ];
}

function signIn(password: string | undefined): readonly string[] {
  if (password === undefined) return [];
  return [
    '',
    '  Sign in as  admin',
    `  Password    ${password}   (made now and shown this once)`,
    '  To choose your own, set POSTERN_ADMIN_PASSWORD or http.accounts.',
  ];
}

/** Prefers a listener that needs no sign-in. */
function tryIt({ http, listeners, configuration, commandFor }: WelcomeContext): readonly string[] {
  const [domain = 'localhost'] = configuration.domains;
  const receiving = configuration.settings.smtp.listeners.flatMap((settings, index) => {
    const { host, port } = listeners[index] ?? {};
    return host === undefined || port === undefined || takesNoMail(settings) ? [] : [{ settings, host, port }];
  });
  const listener = receiving.find(({ settings }) => settings.mode !== 'submission') ?? receiving[0];
  const add = `  Add a user  ${commandFor(`user add NAME@${domain}`)}`;
  const read = `  Then read   ${http}/store/${domain}/postmaster`;
  if (listener === undefined) return ['', add];
  const words = [`--server ${reachable(listener.host)}:${listener.port}`, ...swaksArguments(listener.settings, domain)];
  const send = `  Try it      swaks ${words.join(' ')} --to postmaster@${domain}`;
  return listener.settings.mode === 'submission' ? ['', add, send, read] : ['', send, read, add];
}

/** Arguments of swaks(1). */
function swaksArguments({ mode, tls }: ListenerSettings, domain: string): readonly string[] {
  const secure = tls === 'implicit' ? ['--tls-on-connect'] : tls === 'starttls' ? ['--tls'] : [];
  if (mode === 'lmtp') return ['--protocol LMTP', ...secure];
  return mode === 'mx' ? secure : [...secure, `--auth-user NAME@${domain} --from NAME@${domain}`];
}

function reachable(host: string): string {
  if (host === '0.0.0.0' || host === '::') return '127.0.0.1';
  return isIPv6(host) ? `[${host}]` : host;
}
