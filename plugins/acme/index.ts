import { join } from 'node:path';
import { configuration, lifecycle } from '../../core/contracts/server.js';
import { serverCertificate } from '../../core/contracts/server-certificate.js';
import { openDocument } from '../../core/disk/document.js';
import { definePlugin } from '../../core/plugin.js';
import { namesCheck } from './doctor-check.js';
import { acmeEndpoints } from './http/routes.js';
import { AcmeOptions, type AcmeSettings } from './options.js';
import { AcmeState, noState, Renewal } from './renewal.js';

const lookSeconds = 5;

/** Obtains the certificate of the server by ACME (RFC 8555), and renews it. */
export const acme = definePlugin({
  name: 'acme',
  options: AcmeOptions,
  needs: { configuration, lifecycle, serverCertificate },
  checks: [namesCheck],
  async setup(context, { options, lifecycle: { started }, serverCertificate: certificate }) {
    const { clock, log, health, http, metrics, every, onClose } = context;
    let settings: AcmeSettings = options;
    const file = join(await context.folder('acme'), 'state.json');
    const document = await openDocument({ file, schema: AcmeState, initial: noState });
    const attempts = metrics.counter('acme_attempts_total', 'Attempts to obtain a certificate.', ['result']);
    const tokens = new Map<string, string>();
    const renewal = new Renewal({
      document,
      certificate,
      settings: () => settings,
      answers: {
        http: (token, keyAuthorization) => {
          tokens.set(token, keyAuthorization);
          return () => tokens.delete(token);
        },
        tls: (name, pair) => certificate.answerChallenge(name, pair),
      },
      attempted: (result) => attempts.inc({ result }),
      clock,
      log,
    });
    onClose(() => renewal.stop());
    health.check('certificate', () => renewal.health());
    http.mount(acmeEndpoints({ renewal, settings: () => settings, now: () => clock.now(), tokens }));
    http.navigate({ title: 'Certificate', href: '/acme', order: 93, role: 'read', group: 'Admin' });
    let isStarted = false;
    void started.then(() => (isStarted = true));
    every(lookSeconds, () => {
      if (isStarted) renewal.look();
    });
    return {
      reconfigure(changed: AcmeSettings) {
        settings = changed;
      },
    };
  },
});
