import { test } from 'node:test';
import { relayQueueContract } from '../../../kit/relay-queue/contract.js';
import { fileQueueFixture } from './queue-fixture.js';

relayQueueContract(test, fileQueueFixture);
