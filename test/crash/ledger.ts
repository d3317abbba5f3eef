import { randomBytes, randomInt } from 'node:crypto';
import { behindTrace } from '../support/mailbox-reader.js';
import { SmtpClient, type ReceivedReply } from '../support/smtp-client.js';

/** What the senders know: every message that they have sent, those that got a 250, and those that got another answer. */
export class Ledger {
  readonly sent = new Map<string, string>();
  readonly acknowledged = new Set<string>();
  readonly refused = new Set<string>();

  #waiting: { readonly count: number; readonly resolve: () => void } | undefined;

  /** Resolves when so many more messages have got a 250. */
  more(count: number): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting = { count: this.acknowledged.size + count, resolve };
    });
  }

  #acknowledge(text: string): void {
    this.acknowledged.add(idOf(text));
    if (this.acknowledged.size >= (this.#waiting?.count ?? Infinity)) this.#waiting?.resolve();
  }

  /** Makes up a message and sends it behind its envelope; resolves with the reply to the final dot, or to DATA. */
  async send(client: SmtpClient): Promise<ReceivedReply> {
    const text = this.#compose();
    const reply = await client.data(text);
    if (reply.code === 250) this.#acknowledge(text);
    else this.refused.add(idOf(text));
    return reply;
  }

  #compose(): string {
    const id = `<${randomBytes(9).toString('hex')}@sender.example>`;
    const lines = Array.from({ length: randomInt(1, 400) }, (_, n) => `${'.'.repeat(n % 3)}line ${n} of ${id}`);
    const text = `From: a@sender.example\r\nSubject: ${lines.length}\r\nMessage-ID: ${id}\r\n\r\n${lines.join('\r\n')}\r\n`;
    this.sent.set(id, text);
    return text;
  }

  /** Sends message after message until the server is gone. */
  async sendUntilGone(port: number): Promise<void> {
    try {
      const client = await SmtpClient.greeted({ port });
      for (;;) {
        await client.pipeline(['MAIL FROM:<a@sender.example>', 'RCPT TO:<postmaster@localhost>']);
        await this.send(client);
      }
    } catch {
      // The connection ended: that is what this waits for.
    }
  }

  /** Copies by Message-ID; throws when a message is not the one that was sent, byte for byte. */
  copies(kept: readonly Buffer[]): ReadonlyMap<string, number> {
    const copies = new Map<string, number>();
    for (const raw of kept) {
      const text = behindTrace(raw).toString();
      if (text !== this.sent.get(idOf(text))) throw new Error(`a message is there in part: ${idOf(text)}`);
      copies.set(idOf(text), (copies.get(idOf(text)) ?? 0) + 1);
    }
    return copies;
  }
}

const idOf = (text: string): string => /^Message-ID: (\S+)/m.exec(text)?.[1] ?? 'none';
