import { readFileSync, statSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { advice, fine, skipped, trouble, type Finding } from '../../core/contracts/doctor-check.js';
import { packageRoot } from '../../core/host/installation.js';
import { processLimits } from '../../core/net/process-limits.js';
import { type CoreCheck, ownerLock, type DoctorContext } from './doctor-context.js';

/** Beside sessions: mailbox files, outgoing connections, the server itself. */
const otherFiles = 500;
/** A clock that is earlier than recorded events by this much is wrong. */
const clockSlackMs = 60_000;

export const systemChecks: readonly CoreCheck[] = [
  { group: 'System', name: 'node-version', run: () => [nodeVersion(process.versions.node)] },
  { group: 'System', name: 'user', run: ({ configuration }) => user(configuration.data) },
  { group: 'System', name: 'open-files', run: openFiles },
  { group: 'System', name: 'clock', run: clock },
];

/** @param running `20.19.0` */
export function nodeVersion(running: string): Finding {
  const { engines } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as {
    engines: { node: string };
  };
  const needed = engines.node.replace(/^[^\d]*/, '');
  if (compareVersions(running, needed) >= 0) return fine(`Node.js ${running} is new enough (${needed}).`);
  return trouble(
    `Node.js ${running} is older than ${needed}, which Postern needs.`,
    `Install Node.js ${needed} or newer.`,
  );
}

function compareVersions(one: string, other: string): number {
  const [a, b] = [one, other].map((version) => version.split('.').map((part) => Number.parseInt(part, 10)));
  for (let part = 0; part < 3; part += 1) {
    const difference = (a?.[part] ?? 0) - (b?.[part] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** Permissions are tested as the current user, which should be the user of the server. */
async function user(data: string): Promise<readonly Finding[]> {
  const mine = process.getuid?.();
  if (mine === undefined) return [skipped('This system has no user ids.')];
  const owner = (await stat(data).catch(() => undefined))?.uid;
  if (owner !== undefined && owner !== mine) {
    const todo = `Run it as the user of the server: sudo -u '#${owner}' postern doctor.`;
    const is = `This runs as user ${mine}, and the data folder belongs to user ${owner}.`;
    return [mine === 0 ? advice(`${is} Root sees no missing rights.`, todo) : trouble(is, todo)];
  }
  if (mine !== 0) return [fine(`This runs as user ${mine}, whose the data folder is or will be.`)];
  return [advice('Everything runs as root.', 'Give the server a user of its own; port 25 needs no root (see Ports).')];
}

/** Node raises its soft limit to the hard limit at the start. */
function openFiles({ configuration, owner }: DoctorContext): readonly Finding[] {
  const pid = ownerLock({ owner })?.pid;
  const limit = openFileLimit(pid);
  if (limit === undefined) return [skipped('This system does not tell how many files may be open.')];
  const { smtp, http } = configuration.settings;
  const needed = smtp.limits.clients + http.limits.maxConnections + otherFiles;
  const whose = pid === undefined ? 'A process that is started here' : `The server (process ${pid})`;
  const wants = `${smtp.limits.clients} sessions (smtp.limits.clients) and ${http.limits.maxConnections} requests (http.limits.maxConnections)`;
  if (limit >= needed) return [fine(`${whose} may open ${limit} files: enough for ${wants}.`)];
  return [
    advice(
      `${whose} may open ${limit} files; ${wants} need ${needed}.`,
      `Raise the limit (LimitNOFILE=${needed} in the systemd unit, ulimit -n), or lower those two.`,
    ),
  ];
}

function openFileLimit(pid: number | undefined): number | undefined {
  try {
    const table = pid === undefined ? undefined : readFileSync(`/proc/${pid}/limits`, 'utf8');
    const limit = processLimits(table)['open.files.soft']?.split(' ')[0];
    return limit === undefined ? undefined : limit === 'unlimited' ? Infinity : Number(limit);
  } catch {
    return undefined;
  }
}

/** There is no reference clock; a clock that is earlier than recorded events is wrong. */
function clock({ clock, owner }: DoctorContext): readonly Finding[] {
  const now = clock.now();
  const installed = statSync(join(packageRoot, 'package.json')).mtimeMs;
  const started = Date.parse(ownerLock({ owner })?.startedAt ?? '1970-01-01');
  const time = new Date(now).toISOString();
  if (now + clockSlackMs >= Math.max(installed, started)) return [fine(`The clock says ${time}.`)];
  const event = started > installed ? 'the server was started' : 'Postern was installed';
  return [trouble(`The clock says ${time}, which is before ${event}.`, 'Set the clock, and let NTP keep it right.')];
}
