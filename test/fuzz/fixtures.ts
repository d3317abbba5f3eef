import { examplePath, HttpFixture } from '../hostile/http-fixture.js';
import { SmtpFixture } from '../hostile/smtp-fixture.js';
import type { Ending } from '../support/ending.js';
import { dialogueTarget } from './dialogue.js';
import { messagePageTarget } from './message-page.js';
import { messageChunksTarget, messageTextTarget } from './message-text.js';
import { addressTarget, headerTarget } from './parsers.js';
import { requestTarget } from './requests.js';
import type { FuzzTarget } from './target.js';

/** The targets, and what starts the servers that they talk to; those stop when the test ends. */
export function fuzzFixture(ending: Ending): {
  readonly targets: readonly FuzzTarget[];
  readonly start: () => Promise<void>;
} {
  let smtp: SmtpFixture | undefined;
  let http: HttpFixture | undefined;
  const smtpFixture = (): SmtpFixture => {
    if (smtp === undefined) throw new Error('the servers have not started');
    return smtp;
  };
  const httpFixture = (): HttpFixture => {
    if (http === undefined) throw new Error('the servers have not started');
    return http;
  };
  return {
    targets: [
      addressTarget,
      headerTarget,
      dialogueTarget(smtpFixture, 'mx'),
      dialogueTarget(smtpFixture, 'submission'),
      dialogueTarget(smtpFixture, 'lmtp'),
      messageTextTarget(smtpFixture),
      messageChunksTarget(smtpFixture),
      requestTarget(httpFixture),
      messagePageTarget(httpFixture),
    ],
    start: async () => {
      [smtp, http] = await Promise.all([SmtpFixture.start(ending), HttpFixture.start(ending)]);
      // Templates and descriptions are made at their first use, once; that is no work for what comes in.
      for (const { path } of http.endpoints.filter(({ method }) => method === 'GET')) {
        await http.ask('GET', examplePath(path), { headers: ['Accept: text/html'] });
      }
    },
  };
}
