import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { selfSigned } from '../../../support/certificate.js';
import { atEnd, type Ending } from '../../../support/ending.js';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

export interface PolicyHost {
  readonly port: number;
  /** To be trusted. */
  readonly ca: string;
  /** `host path` of each request. */
  readonly asked: string[];
  answer: Answer;
}

/** What a policy host sends that has a policy. */
export const policyText = (text: string): Answer => {
  return (_, response) => response.writeHead(200, { 'Content-Type': 'text/plain; charset=utf-8' }).end(text);
};

/** A web server on 127.0.0.1 with a certificate for the policy host of `domain`, closed when the test ends. */
export async function startPolicyHost(test: Ending, domain: string): Promise<PolicyHost> {
  const pair = selfSigned(`mta-sts.${domain}`);
  const server = createServer(pair, (request, response) => {
    host.asked.push(`${request.headers.host} ${request.url}`);
    host.answer(request, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(test, () => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const host: PolicyHost = { port, ca: pair.cert, asked: [], answer: policyText('') };
  return host;
}
