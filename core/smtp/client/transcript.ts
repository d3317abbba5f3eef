import type { ClientFailure, ClientStep } from './failure.js';
import type { Reply } from '../protocol/reply.js';

/** One step of the dialogue as it is shown; without credentials. */
export interface TranscriptEntry {
  readonly step: ClientStep;
  /** The verb: `EHLO`, `MAIL`, `.`; empty for the connection and its greeting. */
  readonly command: string;
  /** The line as it was sent, credentials masked; of the message its size alone. */
  readonly payload: string;
  /** The reply as it came, its lines joined by LF. */
  readonly response: string | undefined;
  readonly error: string | undefined;
  readonly ms: number;
}

/** Keeps what was said, up to a bound. */
export class Transcript {
  readonly #entries: TranscriptEntry[] = [];
  readonly #most: number;
  #left = 0;

  constructor(most = 10_000) {
    this.#most = most;
  }

  /** In the order in which the replies came. */
  get entries(): readonly TranscriptEntry[] {
    return this.#entries;
  }

  /** Steps that found no room. */
  get left(): number {
    return this.#left;
  }

  add(entry: TranscriptEntry): void {
    if (this.#entries.length < this.#most) this.#entries.push(entry);
    else this.#left += 1;
  }
}

/** As it came, its lines joined by LF. */
export function writtenReply({ code, status, lines }: Reply): string {
  const front = status === null ? String(code) : `${code} ${status}`;
  return lines.map((line) => `${front} ${line}`).join('\n');
}

export interface SaidStep {
  readonly step: ClientStep;
  readonly payload: string;
  readonly ms: number;
}

/** The entry of a step that got a reply, a failure, or both. */
export function transcriptEntry(said: SaidStep, reply: Reply | undefined, failure?: ClientFailure): TranscriptEntry {
  const { step, payload, ms } = said;
  const command = /^[A-Z.]*/.exec(payload)?.[0] ?? '';
  const response = reply && writtenReply(reply);
  return { step, command, payload, response, error: failure?.text, ms };
}
