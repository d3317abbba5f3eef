import type { LoadedConfiguration } from './config/load.js';

export interface WelcomeInput {
  readonly http: string;
  readonly listeners: readonly { readonly name: string; readonly host: string; readonly port: number }[];
  readonly configuration: LoadedConfiguration;
  /** The password that was made at this first start; shown once, here. */
  readonly generatedPassword: string | undefined;
  readonly version: string;
  /** Plugins of the site that are left out, with the reason. */
  readonly failed: readonly { readonly name: string; readonly why: string }[];
  /** How this installation's commands are called: `npx postern … --data /srv/mail`. */
  readonly commandFor: (words: string) => string;
}

/** The block that a person reads after the start: where things are and what to do next. */
export function welcome(input: WelcomeInput): string {
  const { http, listeners, configuration, generatedPassword, version } = input;
  const [domain = 'localhost'] = configuration.domains;
  const first = listeners[0];
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
    ...(first === undefined ? [] : tryIt(first, domain, input)),
    '',
  ].join('\n');
}

function leftOut({ failed, http }: WelcomeInput): readonly string[] {
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

function tryIt(
  listener: { readonly host: string; readonly port: number },
  domain: string,
  { http, commandFor }: WelcomeInput,
): readonly string[] {
  return [
    '',
    `  Try it      swaks --server ${listener.host}:${listener.port} --to postmaster@${domain}`,
    `  Then read   ${http}/store/${domain}/postmaster`,
    `  Add a user  ${commandFor(`user add NAME@${domain}`)}`,
  ];
}
