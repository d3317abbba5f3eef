import { relayQueueContract } from '../../../support/relay-queue-contract.js';
import { fileQueueGround } from './queue-ground.js';

relayQueueContract(fileQueueGround);
