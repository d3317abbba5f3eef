import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { advice, fine, skipped, trouble, type Finding } from '../../core/contracts/doctor-check.js';
import { faultCode, isMissing } from '../../core/disk/fault.js';
import { stallCause, durationText, readStalls, type StallRecord } from '../../core/watchdog/stall-record.js';
import { type CoreCheck, ownerLock, type OwnerState, type DoctorContext } from './doctor-context.js';

const longStartMs = 120_000;
const slowAnswerMs = 1000;
const rememberedMs = 7 * 86_400_000;
const maxStallsShown = 3;

export const serverChecks: readonly CoreCheck[] = [
  { group: 'Server', name: 'server', run: server },
  { group: 'Server', name: 'stalls', run: stalls },
  { group: 'Server', name: 'health', run: health },
  { group: 'Server', name: 'proxies', run: proxies },
  { group: 'Server', name: 'log', run: log },
];

async function server(context: DoctorContext): Promise<readonly Finding[]> {
  const { owner } = context;
  if (owner.state === 'none') return [skipped('No server runs on this data folder.')];
  if (owner.state === 'hidden') {
    return [trouble(`Who owns the data folder cannot be read (${owner.code}).`, 'Run this as the user of the server.')];
  }
  return [owner.state === 'answers' ? answering(owner) : await withoutAnswer(owner, context)];
}

type Owner<S extends OwnerState['state']> = Extract<OwnerState, { readonly state: S }>;

function answering({ ms, lock }: Owner<'answers'>): Finding {
  const is = `The server (process ${lock.pid}, started ${lock.startedAt}) answers in ${ms} ms.`;
  if (ms < slowAnswerMs) return fine(is);
  return advice(is, 'Look at /system/threads and at the load of the machine.');
}

async function withoutAnswer(
  owner: Owner<'starting' | 'silent'>,
  { clock, configuration }: DoctorContext,
): Promise<Finding> {
  const { pid, startedAt } = owner.lock;
  const stall = await presentStall(configuration.data, pid);
  if (stall !== undefined) return standstill(stall, pid, clock.now());
  if (owner.state === 'silent') return silence(owner.why, pid);
  const ms = clock.now() - Date.parse(startedAt);
  const is = `The server (process ${pid}) has been starting for ${durationText(ms)}.`;
  if (ms < longStartMs) return fine(is);
  return trouble(is, `Look at its output and its log; kill ${pid} ends it.`);
}

async function presentStall(data: string, pid: number): Promise<StallRecord | undefined> {
  const stalls = await readStalls(data).catch(() => []);
  return stalls.find((stall) => stall.pid === pid && stall.until === null);
}

function silence(why: string, pid: number): Finding {
  return trouble(
    `The server (process ${pid}) runs, but ${why}.`,
    `Wait some seconds and look again: a stall is on record after watchdog.stallSeconds. Else look at its log, and end it with kill -9 ${pid}.`,
  );
}

/** It receives no other signal. */
function standstill(stall: StallRecord, pid: number, now: number): Finding {
  const { since, plugin } = stall;
  const is = `The server (process ${pid}) has answered nothing for ${durationText(now - Date.parse(since))}, since ${since}: ${stallCause(stall)} does not come back.`;
  const next =
    plugin === null
      ? 'then find out what it waits for'
      : `then switch the plugin off (plugins: { ${JSON.stringify(plugin)}: false }) or mend it, and start again`;
  return trouble(is, `End it with kill -9 ${pid}; what was acknowledged is on the disk; ${next}.`);
}

/** Ended stalls, and how runs have ended. */
async function stalls({ configuration, clock, owner }: DoctorContext): Promise<readonly Finding[]> {
  const found = await readStalls(configuration.data).catch(() => []);
  const present = ownerLock({ owner })?.pid;
  const recent = found.filter(
    (stall) => clock.now() - Date.parse(stall.since) < rememberedMs && !(stall.until === null && stall.pid === present),
  );
  if (recent.length === 0) return [];
  return recent.slice(0, maxStallsShown).map((stall) => advice(pastStall(stall), adviceFor(stall)));
}

function pastStall(stall: StallRecord): string {
  const { outcome, since, until } = stall;
  if (outcome === 'over' && until !== null) {
    return `Nothing was answered for ${durationText(Date.parse(until) - Date.parse(since))} from ${since} on: ${stallCause(stall)}.`;
  }
  const how = outcome === 'killed' ? 'was ended by the watchdog' : 'ended';
  return `A run of the server ${how} while nothing was answered, since ${since}: ${stallCause(stall)}.`;
}

const adviceFor = ({ plugin }: StallRecord): string =>
  plugin === null
    ? 'Look at the stack in stalls.json in the data folder.'
    : `Mend the plugin ${plugin}; stalls.json in the data folder has the stack.`;

function health({ owner }: DoctorContext): readonly Finding[] {
  if (owner.state !== 'answers') return [];
  const entries = Object.entries(owner.health.components);
  const unwell = entries.filter(([, { status }]) => status !== 'up');
  if (unwell.length === 0)
    return entries.length === 0 ? [] : [fine(`All ${entries.length} components of the server are up.`)];
  return unwell.map(([name, { status, why, since }]) => {
    const is = `The component ${name} is ${status} since ${since}: ${why ?? 'it does not say why'}`;
    const todo = 'See /health/extended and the log of the server.';
    return status === 'down' ? trouble(is, todo) : advice(is, todo);
  });
}

/** A server behind such a proxy cannot tell its clients apart. */
function proxies({ owner }: DoctorContext): readonly Finding[] {
  if (owner.state !== 'answers') return [];
  const { unnamedProxyRequestsTotal: requests = 0 } = owner.health.components['http']?.figures ?? {};
  if (requests === 0) return [];
  return [
    advice(
      `A proxy on this machine passes on requests, but http.trustedProxies does not name it: all its clients count as one (${requests} requests since the start).`,
      'Add the address of the proxy, for example http: { trustedProxies: ["127.0.0.1"] }.',
    ),
  ];
}

async function log({ configuration }: DoctorContext): Promise<readonly Finding[]> {
  const folder = join(configuration.data, 'logs');
  try {
    await stat(folder);
    await access(folder, constants.R_OK | constants.W_OK | constants.X_OK);
    await access(join(folder, 'audit.log'), constants.W_OK).catch((error: unknown) => {
      if (!isMissing(error)) throw error;
    });
    return [fine(`The log and the audit log in ${folder} can be written.`)];
  } catch (error) {
    if (isMissing(error)) return [skipped('There is no log yet.')];
    const is = `The log in ${folder} cannot be written (${faultCode(error) ?? 'error'}).`;
    return [trouble(is, 'Let the folder and its files belong to the user of the server.')];
  }
}
