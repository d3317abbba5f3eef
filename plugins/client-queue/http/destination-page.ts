import type { z } from 'zod';
import type { DestinationAnswer } from './destination-answer.js';
import { isSite, siteLabel } from '../delivery/site-key.js';

/** What the page of a destination shows beside what scripts get. */
export function destinationPage(answer: z.output<typeof DestinationAnswer>) {
  const { destination, site, destinations } = answer;
  const isOfSite = isSite(destination);
  return {
    ...answer,
    isSite: isOfSite,
    title: isOfSite ? (siteLabel(site, '') ?? destination) : destination,
    siteLabel: site === null ? null : siteLabel(site, ''),
    siteHref: site === null || isOfSite ? null : `/client/destinations/${encodeURIComponent(site)}`,
    others: destinations.filter((other) => other !== destination),
  };
}
