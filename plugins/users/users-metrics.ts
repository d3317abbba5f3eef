import type { PluginContext } from '../../core/plugin.js';
import type { SignIn } from './sign-ins.js';

export type SignInResult = SignIn['outcome'] | 'unavailable';
export type CountSignIn = (via: 'smtp' | 'http', result: SignInResult) => void;

/** Counts sign-ins and exports the number of users. */
export function usersMetrics(metrics: PluginContext['metrics'], users: () => number): CountSignIn {
  const signIns = metrics.counter('authentications_total', 'Sign-ins of mail users, by protocol and result', [
    'via',
    'result',
  ]);
  metrics.gauge('users', 'Mail users, those that are disabled included', [], (gauge) => gauge.set(users()));
  return (via, result) => signIns.inc({ via, result });
}
