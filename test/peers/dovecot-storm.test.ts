import { test } from 'node:test';
import { isRoot } from '../support/account.js';
import { skipWithout } from '../support/peers.js';
import { weather } from './dovecot-beside.js';

const skip = skipWithout('dovecot') || (isRoot() && skipWithout('setpriv'));

test(
  'mail clients and the API change the same folders at once: nothing is lost, doubled or complained about',
  { skip },
  async (t) => {
    t.diagnostic(await weather(t, 40));
  },
);
