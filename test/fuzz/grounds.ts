import { examplePath, HttpGround } from '../hostile/http-ground.js';
import { SmtpGround } from '../hostile/smtp-ground.js';
import type { Ending } from '../support/ending.js';
import { dialogueTarget } from './dialogue.js';
import { messagePageTarget } from './message-page.js';
import { messageTextTarget } from './message-text.js';
import { addressTarget, headerTarget } from './parsers.js';
import { requestTarget } from './requests.js';
import type { FuzzTarget } from './target.js';

/** The targets, and what starts the servers that they talk to; those stop when the test ends. */
export function fuzzGround(ending: Ending): {
  readonly targets: readonly FuzzTarget[];
  readonly start: () => Promise<void>;
} {
  let smtp: SmtpGround | undefined;
  let http: HttpGround | undefined;
  const smtpGround = (): SmtpGround => {
    if (smtp === undefined) throw new Error('the servers have not started');
    return smtp;
  };
  const httpGround = (): HttpGround => {
    if (http === undefined) throw new Error('the servers have not started');
    return http;
  };
  return {
    targets: [
      addressTarget,
      headerTarget,
      dialogueTarget(smtpGround, 'mx'),
      dialogueTarget(smtpGround, 'submission'),
      dialogueTarget(smtpGround, 'lmtp'),
      messageTextTarget(smtpGround),
      requestTarget(httpGround),
      messagePageTarget(httpGround),
    ],
    start: async () => {
      [smtp, http] = await Promise.all([SmtpGround.start(ending), HttpGround.start(ending)]);
      // Templates and descriptions are made at their first use, once; that is no work for what comes in.
      for (const { path } of http.endpoints.filter(({ method }) => method === 'GET')) {
        await http.ask('GET', examplePath(path), { headers: ['Accept: text/html'] });
      }
    },
  };
}
