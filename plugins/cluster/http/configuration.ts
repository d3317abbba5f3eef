import { z } from 'zod';
import { layerFileName } from '../../../core/config/layer-folder.js';
import type { Configuration } from '../../../core/contracts/server.js';
import { type AnyEndpoint, defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { problem } from '../../../core/problem.js';
import { SetAnswer, SetNumber, SetsAnswer } from '../configuration/set-answers.js';
import type { ConfigurationSets } from '../configuration/sets.js';

const group = 'Cluster';
const maxFiles = 100;
/** All files of a set, in characters. */
const maxCharacters = 1024 * 1024;

export interface SetsDeps {
  readonly sets: ConfigurationSets;
  readonly configuration: Configuration;
  /** Called when another set is in use. */
  readonly changed: () => void;
}

const File = z.strictObject({
  name: z.string().regex(layerFileName, 'must be a name such as base.json5 or servers/mx1.json5'),
  text: z.string().max(maxCharacters),
});
const Number = z.coerce
  .number()
  .int()
  .min(1)
  .max(2 ** 40);

/** Sets of configuration files. */
export const setEndpoints = (deps: SetsDeps): readonly AnyEndpoint[] => [
  listEndpoint(deps),
  showEndpoint(deps),
  pushEndpoint(deps),
  useEndpoint(deps),
];

const listEndpoint = ({ sets }: SetsDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/cluster/configuration',
    summary: 'Sets of configuration files that the nodes share',
    group,
    access: 'admin',
    problems: ['unavailable'],
    answer: SetsAnswer,
    view: 'sets.njk',
    cache: 'no-store',
    async handle() {
      const { current } = await sets.state();
      return { sets: (await sets.list()).map((set) => ({ ...set, current: set.number === current?.number })) };
    },
  });

const showEndpoint = ({ sets, configuration }: SetsDeps) =>
  defineEndpoint({
    method: 'GET',
    path: '/cluster/configuration/{number}',
    summary: 'The files of a set',
    group,
    access: 'admin',
    problems: ['not-found', 'unavailable'],
    params: z.strictObject({ number: Number }),
    answer: SetAnswer,
    view: 'set.njk',
    cache: 'no-store',
    async handle({ params: { number } }) {
      const set = await sets.get(number);
      const { current } = await sets.state();
      const masked = set.files.map(({ name, text }) => ({
        name,
        text: configuration.review?.(name, text).text ?? '',
      }));
      return { ...set, current: set.number === current?.number, files: masked };
    },
  });

const pushEndpoint = ({ sets, configuration }: SetsDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/cluster/configuration',
    summary: 'Keep a new set of configuration files; no node applies it yet',
    group,
    access: 'admin',
    problems: ['unavailable'],
    body: {
      kind: 'fields',
      schema: z.strictObject({ files: z.array(File).min(1).max(maxFiles) }),
      limit: 4 * maxCharacters,
    },
    answer: SetNumber,
    success: [201],
    cache: 'no-store',
    async handle({ body: { files }, request }) {
      refuseUnfit(files, configuration);
      const set = await sets.add(files, request.account?.username ?? null);
      return respond({
        status: 201,
        location: `/cluster/configuration/${set}`,
        model: { set },
        audit: { action: 'push configuration', selector: { set, files: files.map(({ name }) => name) } },
      });
    },
  });

/** @throws Problem `invalid` for files that a set cannot have */
function refuseUnfit(files: readonly z.output<typeof File>[], configuration: Configuration): void {
  if (new Set(files.map(({ name }) => name)).size < files.length)
    throw problem('invalid', 'Two files have the same name.');
  if (files.reduce((sum, { text }) => sum + text.length, 0) > maxCharacters)
    throw problem('invalid', `All files together may have ${maxCharacters} characters.`);
  for (const { name, text } of files) {
    const { secrets = [], keys = [] } = configuration.review?.(name, text) ?? {};
    const [secret] = secrets;
    if (secret !== undefined)
      throw problem('invalid', `${name}: ${secret} is a secret. Name a file or a variable: {file: …} or {env: …}.`);
    if (keys.includes('plugins.cluster'))
      throw problem('invalid', `${name}: only the own file of a server may have plugins.cluster.`);
  }
}

const useEndpoint = ({ sets, changed }: SetsDeps) =>
  defineEndpoint({
    method: 'POST',
    path: '/cluster/configuration/use',
    summary: 'All nodes apply a set, one after the other',
    group,
    access: 'admin',
    problems: ['not-found', 'unavailable'],
    body: { kind: 'fields', schema: z.strictObject({ set: Number }) },
    answer: SetNumber,
    cache: 'no-store',
    async handle({ body: { set }, request }) {
      await sets.use(set, request.account?.username ?? null);
      changed();
      return respond({
        status: 200,
        location: '/cluster',
        model: { set },
        notice: `The nodes apply set ${set}, one after the other.`,
        audit: { action: 'use configuration', selector: { set } },
      });
    },
  });
