import { Ajv2020 } from 'ajv/dist/2020.js';
import ajvFormats from 'ajv-formats';
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { deliver, lines } from '../support/delivery.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';

interface Schema {
  readonly [key: string]: unknown;
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly minimum?: number;
  readonly maximum?: number;
}
interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly required?: boolean;
  readonly schema: Schema;
}
interface Content {
  readonly content?: Readonly<Record<string, { readonly schema: Schema }>>;
}
interface Operation {
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: Content;
  readonly responses: Readonly<Record<string, Content & { readonly $ref?: string }>>;
}
interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: Readonly<Record<string, Readonly<Record<string, Schema>>>>;
}

const runsOfEach = Number(process.env['POSTERN_FUZZ_RUNS'] ?? 12);

const configuration = `{
  smtp: { listeners: [{ name: 'mx', port: 0 }] },
  dns: { servers: ['127.0.0.1:9'] },
  plugins: { 'client-queue': { routes: { nowhere: { mx: ['127.0.0.1'], port: 9 } }, defaultRoute: 'nowhere' } },
}`;

/** Takes seconds and all memory each time. */
const leftOut = ['post /system/heapdump'];

const known: Readonly<Record<string, fc.Arbitrary<string>>> = {
  domain: fc.constantFrom('localhost', 'elsewhere.test', 'no domain'),
  user: fc.constantFrom('postmaster', 'POSTMASTER', 'nobody', 'a b'),
  folder: fc.constantFrom('INBOX', 'inbox', 'Sent', 'Trash', 'Drafts', 'None', 'a.b', '~'),
  username: fc.constantFrom('postmaster@localhost', 'x', '@'),
};

describe('a script that goes by the OpenAPI document', () => {
  test('gets no 5xx, no undeclared status, and JSON as declared, whatever values it sends', async (t) => {
    const server = await startInProcess(t, configuration);
    await deliver(server.portOf('mx'), lines('Subject: one', '', 'hello'));
    const document = (await server.admin.json('/openapi.json')) as Document;
    const ids = await identifiers(server);
    const ajv = new Ajv2020({ strict: false, allErrors: false, schemas: [{ $id: 'doc', ...document }] });
    ajvFormats.default(ajv);
    const seen = new Set<string>();
    const faults = new Map<string, string>();
    const faultOf = ({ responses }: Operation, { status, type, text }: Answer): string | undefined => {
      if (status >= 500 && ![503, 507].includes(status)) return 'a server error';
      const declared = responses[`${status}`];
      if (declared === undefined) return 'an undeclared status';
      const content = (resolve(document, declared as Schema) as typeof declared).content?.[type];
      if (!/^application\/(problem\+)?json$/.test(type) || content === undefined) return undefined;
      const valid = ajv.compile(absolute(content.schema));
      return valid(JSON.parse(text)) ? undefined : JSON.stringify(valid.errors);
    };
    for (const [path, operations] of Object.entries(document.paths)) {
      for (const [method, operation] of Object.entries(operations)) {
        if (leftOut.includes(`${method} ${path}`)) continue;
        const check = async (call: Call): Promise<void> => {
          const { status, type, text } = await send(server, method, call);
          seen.add(`${method} ${path} ${status}`);
          const fault = faultOf(operation, { status, type, text });
          if (fault === undefined || faults.has(`${method} ${path} ${status}`)) return;
          const { headers, body } = call;
          faults.set(
            `${method} ${path} ${status}`,
            `${call.path} ${JSON.stringify({ headers, body }).slice(0, 400)}: ${fault} ${text.slice(0, 300)}`,
          );
        };
        await fc.assert(fc.asyncProperty(callOf(document, path, operation, ids), check), { numRuns: runsOfEach });
      }
    }
    assert.deepEqual([...faults], []);
    // The values must lead somewhere: many operations have to succeed now and then.
    const operations = new Set([...seen].map((one) => one.replace(/ \d+$/, '')));
    const succeeded = new Set([...seen].filter((one) => / 2\d\d$/.test(one)).map((one) => one.replace(/ \d+$/, '')));
    assert.ok(succeeded.size > operations.size / 3, `${succeeded.size} of ${operations.size} operations succeeded`);
  });
});

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly text: string;
}

interface Call {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: { readonly type: string; readonly content: string } | undefined;
}

async function send(server: InProcessServer, method: string, { path, headers, body }: Call): Promise<Answer> {
  const answer = await server.admin.request(path, {
    method: method.toUpperCase(),
    accept: 'application/json, */*;q=0.1',
    headers: { ...headers, ...(body !== undefined && { 'Content-Type': body.type }) },
    ...(body !== undefined && method !== 'get' && { body: body.content }),
  });
  const type = (answer.headers.get('content-type') ?? '').split(';')[0] ?? '';
  return { status: answer.status, type, text: answer.text };
}

/** What a caller would know from earlier answers. */
async function identifiers(server: InProcessServer): Promise<Readonly<Record<string, fc.Arbitrary<string>>>> {
  const mailbox = '/store/localhost/postmaster';
  const inbox = (await server.admin.json(`${mailbox}/folders/INBOX`)) as { items: readonly { id: string }[] };
  const made = await server.admin.json(
    `${mailbox}/drafts`,
    { json: { subject: 'a draft', to: ['postmaster@localhost'] } },
    201,
  );
  const queued = await server.admin.json(
    '/client/queue',
    {
      json: { route: 'nowhere', envelopes: [{ mail: 'a@localhost', rcpt: ['b@elsewhere.test'], text: 'x' }] },
    },
    202,
  );
  return {
    ...known,
    messageId: fc.constantFrom(inbox.items[0]?.id ?? '', 'x'),
    draftId: fc.constantFrom((made as { draftId: string }).draftId, 'x'),
    uid: fc.constantFrom((queued as { uid: string }).uid, 'x'),
  };
}

const resolve = (document: Document, schema: Schema): Schema => {
  const [, group = '', name = ''] = /^#\/components\/([^/]+)\/(.+)$/.exec(schema.$ref ?? '') ?? [];
  return document.components[group]?.[name] ?? schema;
};

/** References into the document, as ajv finds them. */
const absolute = (schema: Schema): Schema =>
  JSON.parse(JSON.stringify(schema).replaceAll('"$ref":"#/', '"$ref":"doc#/')) as Schema;

function callOf(
  document: Document,
  path: string,
  { parameters = [], requestBody }: Operation,
  ids: Readonly<Record<string, fc.Arbitrary<string>>>,
): fc.Arbitrary<Call> {
  const valueOf = ({ name, schema }: Parameter): fc.Arbitrary<unknown> =>
    ids[name] ?? fc.oneof({ weight: 3, arbitrary: valueFor(document, schema) }, { weight: 1, arbitrary: anyText });
  const given = fc.record(
    Object.fromEntries(
      parameters.map((one) => [
        `${one.in} ${one.name}`,
        one.required === true ? valueOf(one) : fc.option(valueOf(one), { nil: undefined }),
      ]),
    ),
  );
  const bodies = Object.entries(requestBody?.content ?? {}).map(([type, { schema }]) =>
    bodyFor(document, type, schema).map((content) => ({
      type: type === '*/*' ? 'application/octet-stream' : type,
      content,
    })),
  );
  const body =
    bodies.length === 0 ? fc.constant(undefined) : fc.option(fc.oneof(...bodies), { nil: undefined, freq: 8 });
  return fc.record({ given, body }).map((made) => {
    const values = (place: string): [string, string][] =>
      Object.entries(made.given)
        .filter(([key, value]) => key.startsWith(`${place} `) && value !== undefined)
        .map(([key, value]) => [
          key.slice(place.length + 1),
          typeof value === 'string' ? value : JSON.stringify(value),
        ]);
    const inPath = new Map(values('path'));
    const filled = path.replaceAll(/\{([^}]+)\}/g, (_, name: string) =>
      encodeURIComponent((inPath.get(name) ?? '').replace(/^\.*$/, 'x')),
    );
    const query = new URLSearchParams(values('query')).toString();
    const headers = Object.fromEntries(
      values('header').map(([name, value]) => [name, value.replaceAll(/[^ -~]/g, '') || 'x']),
    );
    return { path: query === '' ? filled : `${filled}?${query}`, headers, body: made.body };
  });
}

const anyText = fc.oneof(
  fc.string({ maxLength: 20 }),
  fc.constantFrom('', '0', '-1', '1e9', 'é', '\u0000', '%2e%2e', '[', '{}'),
);

function bodyFor(document: Document, type: string, schema: Schema): fc.Arbitrary<string> {
  if (type === 'application/json') return valueFor(document, schema).map((value) => JSON.stringify(value));
  if (type === 'application/x-www-form-urlencoded') {
    // A form that is not confirmed gets a question.
    return valueFor(document, schema).map((value) =>
      new URLSearchParams(
        Object.entries({ ...Object(value), confirm: 'yes' }).map(([name, one]): [string, string] => [
          name,
          typeof one === 'string' ? one : JSON.stringify(one),
        ]),
      ).toString(),
    );
  }
  return fc.oneof(
    fc.string({ maxLength: 200 }),
    fc.constant('From: a@localhost\r\nTo: postmaster@localhost\r\n\r\nx\r\n'),
  );
}

/** A value that the schema allows, or nearly. */
function valueFor(document: Document, given: Schema, depth = 0): fc.Arbitrary<unknown> {
  const schema = resolve(document, given);
  if (schema.const !== undefined) return fc.constant(schema.const);
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return fc.oneof(...choices.map((one) => valueFor(document, one, depth + 1)));
  const type = typeof schema.type === 'string' ? schema.type : schema.type?.[0];
  if (type === 'boolean') return fc.boolean();
  if (type === 'null') return fc.constant(null);
  if (type === 'integer' || type === 'number') {
    const { minimum: min = -1, maximum: max = 2 ** 31 } = schema;
    return fc.oneof(
      fc.integer({ min: Math.ceil(min), max: Math.floor(Math.min(max, min + 20)) }),
      fc.constantFrom(min, max),
    );
  }
  if (type === 'array') {
    if (depth > 4) return fc.constant([]);
    return fc.array(valueFor(document, schema.items ?? {}, depth + 1), { maxLength: 3 });
  }
  if (type === 'object' || schema.properties !== undefined) {
    if (depth > 4) return fc.constant({});
    const properties = Object.entries(schema.properties ?? {});
    const model = Object.fromEntries(
      properties.map(([name, one]) => [name, known[name] ?? valueFor(document, one, depth + 1)]),
    );
    return fc.record(model, { requiredKeys: [...(schema.required ?? [])].filter((name) => name in model) });
  }
  return fc.oneof(
    anyText,
    fc.constantFrom('postmaster@localhost', 'INBOX', 'elsewhere.test', '2026-01-01T00:00:00Z', '1h'),
  );
}
