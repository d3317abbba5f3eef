import { rememberingLog } from '../../core/spool/remembering-log.js';
import { TraceLog } from '../../../plugins/trace/trace-log.js';
import { HandClock } from '../../support/hand-clock.js';
import { acceptedRecord } from './records.js';

/** Records one message after the other, and says how many are written. */
const [, , folder = ''] = process.argv;
const limits = { days: 14, bytes: 1e9 };
const traces = await TraceLog.open(folder, limits, new HandClock(), rememberingLog().log);
for (let count = 1; ; count += 1) {
  traces.add(acceptedRecord(count));
  await traces.flush();
  process.send?.(count);
}
