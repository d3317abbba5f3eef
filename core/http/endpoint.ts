import type { Readable } from 'node:stream';
import type { z } from 'zod';
import type { Account, Role } from '../contracts/accounts.js';
import type { AuditNote, Problem, ProblemName } from '../problem.js';

export type Access = 'public' | Role;
export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** What a handler knows of the request beside its validated input. */
export interface EndpointRequest {
  readonly id: string;
  readonly account: Account | null;
  readonly remoteAddress: string;
  /** Name in the `Host` field, in lower case without a port. */
  readonly host: string | undefined;
  readonly path: string;
  readonly representation: Representation;
  /** htmx asked for the page: the view renders its fragment. */
  readonly fragment: boolean;
  /** A destructive form was confirmed (`confirm=yes`), or the caller is not a form. */
  readonly confirmed: boolean;
  readonly ifMatch: string | undefined;
  readonly ifNoneMatch: string | undefined;
  /** The body as a stream, for endpoints whose body is `raw`; bounded by their limit. */
  readonly stream: Readable | undefined;
  readonly contentType: string | undefined;
  /**
   * The files of a multipart body, for endpoints whose raw types include `multipart/form-data`. Gone after the answer.
   */
  readonly files: readonly UploadedFile[];
  /** The text fields of such a body, unchecked. */
  readonly fields: Readonly<Record<string, string | readonly string[]>>;
  /** Path and query without cursor, page, format and notice, for pagers and filter forms. */
  readonly listPath: string;
  /**
   * For endpoints with `idempotent`: 32 hexadecimal digits for the account, the address and the Idempotency-Key. Work
   * committed under this name is recognised when a crash comes before the response was stored.
   */
  readonly once?: string;
  /** For long streams: aborted when the client disconnects, or its account is removed. */
  readonly signal: AbortSignal;
}

/** One uploaded file in a private folder. Its name comes from the client: text for display, never a path. */
export interface UploadedFile {
  readonly field: string;
  readonly filename: string;
  readonly contentType: string;
  readonly size: number;
  open(): Readable;
}

/** `bytes` is whatever type the handler returns: it fits every Accept. `events` are server-sent events. */
export type Representation = 'html' | 'json' | 'text' | 'rfc822' | 'ndjson' | 'openmetrics' | 'events' | 'bytes';

/** Bytes with random access: a file, a decoded part. Serves GET, HEAD and Range. */
export interface ByteSource {
  readonly size: number;
  /** Bytes `start` to `end`, both inclusive as in RFC 9110 §14.1.2. */
  open(start: number, end: number): Readable;
  close?(): Promise<void>;
}

/** A form with one button, posted to a path of this server. */
export interface NoticeAction {
  readonly label: string;
  readonly path: string;
  readonly fields?: Readonly<Record<string, string | readonly string[]>>;
}

/** Anything but a plain 200 with a model. */
export interface Response<Model = unknown> {
  readonly postern: 'response';
  readonly status?: number;
  readonly model?: Model;
  /** Another view than the endpoint's own. */
  readonly view?: string;
  /** An empty text removes a header that the shell would set. */
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * A form is redirected there with 303. For scripts: `Location` of a 201 (the default of POST) or 202; any other
   * status uses it for forms only.
   */
  readonly location?: string;
  /** Opaque, without quotes; the shell quotes it and answers 304 and 412. */
  readonly etag?: string;
  readonly text?: { readonly body: string; readonly contentType: string };
  readonly bytes?: {
    readonly source: ByteSource;
    readonly contentType: string;
    readonly filename?: string;
    readonly disposition?: 'inline' | 'attachment';
  };
  /** Streamed without a length: events, log lines. */
  readonly stream?: { readonly source: Readable; readonly contentType: string };
  /** A sentence for the page to which a form is redirected. */
  readonly notice?: string;
  /** A form beside that sentence, such as Undo. */
  readonly noticeAction?: NoticeAction;
  /** For the audit log: action, object, number. */
  readonly audit?: AuditNote;
}

export function respond<Model>(response: Omit<Response<Model>, 'postern'>): Response<Model> {
  return { postern: 'response', ...response };
}

/**
 * JSON and forms are read, limited and validated by the shell; a raw body is streamed to the handler. `either` takes
 * fields when the body is JSON or a form (then `request.stream` is undefined), else a raw body (then `body` is
 * undefined). Types are media types or ranges; `multipart/form-data` among them gives `request.files`. Limits are
 * bytes; a raw body without one may be as large as a message.
 */
export type BodyDeclaration<B extends z.ZodType> =
  | { readonly kind: 'fields'; readonly schema: B; readonly limit?: number }
  | { readonly kind: 'raw'; readonly types: readonly string[]; readonly limit?: number }
  | {
      readonly kind: 'either';
      readonly schema: B;
      readonly limit?: number;
      readonly types: readonly string[];
      readonly rawLimit?: number;
    };

export interface HandlerInput<P, Q, B> {
  readonly params: P;
  readonly query: Q;
  readonly body: B;
  readonly request: EndpointRequest;
}

/** A form with invalid values. */
export interface RefusedForm<P, Q> {
  readonly params: P;
  readonly query: Q;
  /** The entered values, unchecked. */
  readonly fields: Readonly<Record<string, string | readonly string[]>>;
  readonly problem: Problem;
  readonly request: EndpointRequest;
}

/**
 * One endpoint, declared once: routing, validation, negotiation, access, the landing page, OpenAPI and the docs page
 * all read this.
 */
export interface Endpoint<
  P extends z.ZodType = z.ZodType,
  Q extends z.ZodType = z.ZodType,
  B extends z.ZodType = z.ZodType,
  Model = unknown,
> {
  readonly method: Method;
  /** With parameters in braces, as in OpenAPI: `/store/{domain}/{user}`. */
  readonly path: string;
  readonly summary: string;
  /** Heading on the landing page and tag in OpenAPI. */
  readonly group: string;
  readonly access: Access;
  readonly params?: P;
  readonly query?: Q;
  readonly body?: BodyDeclaration<B>;
  /** Schema of the JSON response. */
  readonly answer?: z.ZodType;
  /** Statuses of a success for scripts, for OpenAPI: `[200]` if absent. A 201 or 202 carries `Location`. */
  readonly success?: readonly (200 | 201 | 202 | 204 | 303 | 503)[];
  /** Problems of this endpoint that do not follow from the rest of its declaration, for OpenAPI. */
  readonly problems?: readonly ProblemName[];
  /** Conditional requests that the handler answers itself, for OpenAPI; `etag` implies `If-Match`. */
  readonly conditions?: readonly ('If-Match' | 'If-None-Match')[];
  /** Representations in order of preference; `['html', 'json']` with a view, else `['json']`. */
  readonly produces?: readonly Representation[];
  /** The representation for a missing Accept header or a wildcard; `json` if produced. */
  readonly fallback?: Representation;
  /** Template below `views/<plugin>/`. */
  readonly view?: string;
  /** `private, no-cache` (revalidate) if absent; `no-store` for secrets, messages and dumps. */
  readonly cache?: 'no-store' | 'private' | 'public';
  /**
   * The current entity tag, looked up before `handle` when the client sent `If-Match`: the shell then answers 412 by
   * itself. Undefined: no such resource. Conditional GETs only need `respond({etag})`.
   */
  readonly etag?: (
    input: HandlerInput<z.output<P>, z.output<Q>, z.output<B>>,
  ) => string | undefined | Promise<string | undefined>;
  /**
   * Name of the node of a cluster that has what the request is about; undefined for this one. Another node answers the
   * request in place of this one. Other nodes reach only endpoints that have it.
   */
  readonly nodeOf?: (
    input: Pick<HandlerInput<z.output<P>, z.output<Q>, unknown>, 'params' | 'query'>,
  ) => string | undefined | Promise<string | undefined>;
  /** A form must carry `confirm=yes`, else it gets a confirmation page with this question. */
  readonly confirm?: string;
  /**
   * Accepts an `Idempotency-Key`: the response of a successful request is stored for 24 hours and repeated without
   * calling `handle`. Only for buffered responses.
   */
  readonly idempotent?: boolean;
  /**
   * The page to show when a form is refused as `invalid`, with the entered values and the errors, status 422. Absent:
   * the page of the form, with each message beside its field.
   */
  readonly again?: (form: RefusedForm<z.output<P>, z.output<Q>>) => Response | Promise<Response>;
  /** False for a call that changes nothing, though it is no GET: the audit log leaves it out when it succeeds. */
  readonly changes?: false;
  /** Hidden on the landing page (favicon). */
  readonly hidden?: boolean;
  /** For the page, the model as the view needs it; JSON callers get the model itself. */
  readonly page?: (model: Model, input: HandlerInput<z.output<P>, z.output<Q>, z.output<B>>) => object;
  readonly handle: (
    input: HandlerInput<z.output<P>, z.output<Q>, z.output<B>>,
  ) => Model | Response<Model> | Promise<Model | Response<Model>>;
}

/** An endpoint whose input types are checked against its own handler. */
export type AnyEndpoint = Endpoint<z.ZodType, z.ZodType, z.ZodType, never>;

/** Checks a declaration against its handler and forgets the types. */
export function defineEndpoint<
  P extends z.ZodType = z.ZodType<Record<never, never>>,
  Q extends z.ZodType = z.ZodType<Record<never, never>>,
  B extends z.ZodType = z.ZodType<undefined>,
  Model = unknown,
>(endpoint: Endpoint<P, Q, B, Model>): AnyEndpoint {
  return Object.freeze(endpoint) as unknown as AnyEndpoint;
}

/** Counts the requests that a plugin works on. */
interface Use {
  begin(): void;
  end(): void;
}

const uses = new WeakMap<object, Use>();

/** The endpoint is in use from the moment its route is found until the request is answered, its body included. */
export function trackInUse(endpoint: AnyEndpoint, use: Use): AnyEndpoint {
  uses.set(endpoint, use);
  return endpoint;
}

export function beginUse(endpoints: readonly object[]): void {
  for (const endpoint of endpoints) uses.get(endpoint)?.begin();
}

export function endUse(endpoints: readonly object[]): void {
  for (const endpoint of endpoints) uses.get(endpoint)?.end();
}
