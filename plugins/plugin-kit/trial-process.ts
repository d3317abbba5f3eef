import { closeNetwork } from './closed-network.js';
import { Trial } from './trial-run.js';
import type { TrialMessage, TrialRequest } from './trial.js';

/** The process that `runTrial` starts: it may be ended at any moment, and is ended when it has reported. */
const say = (message: TrialMessage): void => void process.send?.(message);

// While somebody listens the process goes on, also when nothing in it ever comes to an end.
process.on('message', (request: TrialRequest) => {
  const trial = new Trial(request, (step) => say({ step }));
  process.on('uncaughtException', (error) => say({ report: trial.ended(error) }));
  closeNetwork((what) => trial.tried(what));
  void trial.run().then((report) => say({ report }));
});
