import { relayQueueContract } from '../../../support/relay-queue-contract.js';
import { fileQueueFixture } from './queue-fixture.js';

relayQueueContract(fileQueueFixture);
