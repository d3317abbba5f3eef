import type { Readable } from 'node:stream';
import type { HeaderEdit, SpooledMessage } from '../spool/spool.js';
import { scanHeader } from '../mime/header.js';
import type { ReceivedMessage } from './transaction.js';

type Field = readonly [name: string, value: string];

const noEdit: HeaderEdit = { add: [], remove: [] };

/** A spooled message as hooks see it, with the header changes that hooks in front of them have asked for. */
export class MessageView implements ReceivedMessage {
  readonly edit: HeaderEdit;
  readonly #message: SpooledMessage;
  #headers: readonly Field[] | undefined;

  constructor(message: SpooledMessage, edit: HeaderEdit = noEdit) {
    this.#message = message;
    this.edit = edit;
  }

  get size(): number {
    return this.#message.size - this.#message.messageOffset;
  }

  /** Read from the header block when it is first asked for. */
  get headers(): readonly Field[] {
    this.#headers ??= [...this.edit.add, ...receivedFields(this.#message.head, this.edit.remove)];
    return this.#headers;
  }

  get isEdited(): boolean {
    return this.edit.add.length > 0 || this.edit.remove.length > 0;
  }

  open(): Readable {
    return this.#message.open(this.#message.messageOffset);
  }

  withField(name: string, value: string): MessageView {
    return new MessageView(this.#message, { ...this.edit, add: [...this.edit.add, [name, value]] });
  }

  /** Takes away what was received and what was added before, in any case of letters. */
  withoutField(name: string): MessageView {
    const key = name.toLowerCase();
    return new MessageView(this.#message, {
      add: this.edit.add.filter(([added]) => added.toLowerCase() !== key),
      remove: [...this.edit.remove, name],
    });
  }
}

function receivedFields(head: Buffer, removed: readonly string[]): readonly Field[] {
  const gone = new Set(removed.map((name) => name.toLowerCase()));
  const block = scanHeader(head);
  return block.fields.filter(({ key }) => !gone.has(key)).map((field) => [field.name, block.value(field)]);
}
