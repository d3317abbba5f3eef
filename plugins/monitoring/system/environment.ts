import { printable } from '../../../core/text/format.js';
import { isSecretName, MASK, redactText } from '../../../core/log/redact.js';

export interface EnvironmentVariable {
  readonly name: string;
  /** Masked unless the name is in the list. */
  readonly value: string;
  readonly shown: boolean;
}

/** Harmless variables that describe how the process was set up. */
const harmless = new Set(
  (
    'COLORTERM EDITOR HOME HOSTNAME INVOCATION_ID LANG LANGUAGE LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_MONETARY LC_NUMERIC ' +
    'LC_TIME LOGNAME NODE_ENV NODE_EXTRA_CA_CERTS NO_COLOR OLDPWD PATH PWD SHELL SHLVL SYSTEMD_EXEC_PID TERM TMPDIR TZ ' +
    'UV_THREADPOOL_SIZE USER XDG_RUNTIME_DIR'
  ).split(' '),
);

/** The environment of this process, by name. Values are masked unless known to be harmless. */
export class Environment {
  readonly #variables: Readonly<Record<string, string | undefined>>;

  constructor(variables: Readonly<Record<string, string | undefined>> = process.env) {
    this.#variables = variables;
  }

  /** @param also names that the operator allows; never names of secrets */
  list(also: readonly string[]): readonly EnvironmentVariable[] {
    return Object.entries(this.#variables)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value = '']) => {
        const shown = harmless.has(name) || (also.includes(name) && !isSecretName(name));
        return { name: printable(redactText(name)), value: shown ? printable(redactText(value)) : MASK, shown };
      });
  }
}
