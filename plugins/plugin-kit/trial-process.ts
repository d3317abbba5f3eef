import { closeNetwork } from './closed-network.js';
import { Trial } from './trial-run.js';
import type { TrialMessage, TrialRequest } from './trial.js';

/** The process of `runTrial`: it may be terminated at any time, and is terminated after its report. */
const say = (message: TrialMessage): void => void process.send?.(message);

// The IPC channel keeps the process alive, even when the trial never ends.
process.on('message', (request: TrialRequest) => {
  const trial = new Trial(request, (step) => say({ step }));
  process.on('uncaughtException', (error) => say({ report: trial.ended(error) }));
  closeNetwork((what) => trial.tried(what));
  void trial.run().then((report) => say({ report }));
});
