import { rememberingLog } from '../../core/spool/remembering-log.js';
import { Traffic } from '../../../plugins/monitoring/traffic/traffic.js';
import { TrafficFiles } from '../../../plugins/monitoring/traffic/traffic-files.js';
import { HandClock } from '../../support/hand-clock.js';

/** Counts one message after the other, and says how many are saved. */
const [, , folder = ''] = process.argv;
const clock = new HandClock(Date.UTC(2026, 10, 21, 10, 30));
const traffic = new Traffic(await TrafficFiles.open(folder, rememberingLog().log), clock);
for (let count = 1; ; count += 1) {
  traffic.count('received');
  await traffic.save();
  process.send?.(count);
}
