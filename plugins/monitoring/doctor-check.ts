import { dirname } from 'node:path';
import { advice, fine, trouble, type DoctorCheck } from '../../core/contracts/doctor-check.js';
import { isMissing } from '../../core/disk/fault.js';
import { DiskSpace, spaceOf } from './system/probes.js';
import type { MonitoringSettings } from './options.js';

/** Free space with the bounds of health. */
export const diskSpaceCheck: DoctorCheck<MonitoringSettings> = {
  group: 'Data folder',
  name: 'disk-space',
  async run({ options, configuration }) {
    const disk = new DiskSpace(() => spaceAbove(configuration.data), options.disk);
    await disk.look();
    const { status, why = '' } = disk.report();
    const todo = 'Make room, or change plugins.monitoring.disk if that is enough for you.';
    if (status === 'down') return [trouble(why, todo)];
    if (status === 'degraded') return [advice(why, todo)];
    return [fine(`${Math.floor((disk.space?.free ?? 0) / 1024 / 1024)} MiB are free for the data folder.`)];
  },
};

/** Of the nearest existing folder when the data folder does not exist yet. */
async function spaceAbove(folder: string): ReturnType<typeof spaceOf> {
  try {
    return await spaceOf(folder);
  } catch (error) {
    if (!isMissing(error) || dirname(folder) === folder) throw error;
    return spaceAbove(dirname(folder));
  }
}
