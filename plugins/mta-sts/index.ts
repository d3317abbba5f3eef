import { configuration } from '../../core/contracts/server.js';
import { StsPolicyOptions, type StsPolicySettings, stsPolicyText } from '../../core/dns/mta-sts.js';
import { defineEndpoint, respond } from '../../core/http/endpoint.js';
import { definePlugin } from '../../core/plugin.js';
import { problem } from '../../core/problem.js';

/** Serves the policy of the local domains for the mail to them (RFC 8461). */
export const mtaSts = definePlugin({
  name: 'mta-sts',
  options: StsPolicyOptions,
  needs: { configuration },
  setup({ http }, { options, configuration }) {
    let settings: StsPolicySettings = options;
    const policy = defineEndpoint({
      method: 'GET',
      path: '/.well-known/mta-sts.txt',
      summary: 'MTA-STS policy of a local domain, at the host mta-sts.DOMAIN',
      group: 'TLS',
      access: 'public',
      hidden: true,
      produces: ['text'],
      problems: ['not-found'],
      cache: 'no-store',
      handle: ({ request: { host = '' } }) => {
        const domain = host.replace(/^mta-sts\./, '');
        if (domain === host || !configuration.domains.includes(domain)) {
          throw problem('not-found', 'The policies are at https://mta-sts.DOMAIN, for each local domain.');
        }
        // Exactly this type is asked for (RFC 8461 §3.2).
        return respond({ text: { body: stsPolicyText(settings, configuration.hostname), contentType: 'text/plain' } });
      },
    });
    http.mount([policy]);
    return {
      reconfigure(changed: StsPolicySettings) {
        settings = changed;
      },
    };
  },
});
