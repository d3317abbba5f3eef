import { chownSync, linkSync, mkdirSync, readdirSync, renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type MailAccount, isRoot } from '../test/support/account.js';

/** A mailbox below a folder of mailboxes, made without a mail server. */
export interface Tree {
  /** Folder of the mailboxes. */
  readonly root: string;
  readonly mailbox: string;
}

const hour = 3600;
const firstSecond = 1_600_000_000;
const words = 'offer invoice meeting report picnic holiday deadline contract parcel garden'.split(' ');

export function makeTree(root: string, account: MailAccount, domain = 'example.org', user = 'ann'): Tree {
  const mailbox = join(root, domain, user);
  const folders = [root, join(root, domain), mailbox, ...['cur', 'new', 'tmp'].map((part) => join(mailbox, part))];
  for (const folder of folders) {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    own(folder, account);
  }
  return { root, mailbox };
}

/** Messages as a mail client leaves them: in `cur`, nine of ten read. */
export function fillTree({ mailbox }: Tree, count: number, account: MailAccount): void {
  for (let n = 0; n < count; n += 1) {
    const text = textOf(n);
    const chance = ((n * 2_654_435_761) % 2 ** 32).toString(16).padStart(8, '0').repeat(4);
    const unique = `${firstSecond + n * hour}.M${(n * 7919) % 1_000_000}P1234Q${n}R${chance}.mail.example.org`;
    const path = join(mailbox, 'cur', `${unique},S=${text.length},W=${text.length}:2,${n % 10 === 0 ? '' : 'S'}`);
    writeFileSync(path, text, { mode: 0o600 });
    utimesSync(path, firstSecond + n * hour, firstSecond + n * hour);
    own(path, account);
  }
}

/** The same messages once more, as links. */
export function linkTree(from: Tree, to: Tree): void {
  for (const name of readdirSync(join(from.mailbox, 'cur'))) {
    linkSync(join(from.mailbox, 'cur', name), join(to.mailbox, 'cur', name));
  }
}

let arrived = 0;

/** A message arrives, as another program delivers it. */
export function arrive({ mailbox }: Tree, account: MailAccount): void {
  arrived += 1;
  const text = textOf(arrived);
  const name = `${4_000_000_000 + arrived}.M${arrived}P1Q${arrived}.mail.example.org,S=${text.length},W=${text.length}`;
  writeFileSync(join(mailbox, 'tmp', name), text, { mode: 0o600 });
  own(join(mailbox, 'tmp', name), account);
  renameSync(join(mailbox, 'tmp', name), join(mailbox, 'new', name));
}

/** What a mail server has noted of its own. */
export function forgetIndex({ mailbox }: Tree): void {
  for (const name of readdirSync(mailbox)) if (name.startsWith('dovecot')) rmSync(join(mailbox, name));
}

function own(path: string, { uid, gid }: MailAccount): void {
  if (isRoot()) chownSync(path, uid, gid);
}

function textOf(n: number): string {
  const word = words[n % words.length] ?? '';
  const date = new Date((firstSecond + n * hour) * 1000).toUTCString();
  return [
    'Return-Path: <sender@example.net>',
    `Received: from mail.example.net by mail.example.org with ESMTP id ${n}; ${date}`,
    `From: Person ${n % 977} <person${n % 977}@example.net>`,
    'To: Ann <ann@example.org>',
    `Subject: The ${word} number ${n}`,
    `Date: ${date}`,
    `Message-ID: <${n}.${word}@example.net>`,
    'MIME-Version: 1.0',
    'Content-Type: text/plain; charset=utf-8',
    '',
    `This is about the ${word}.`,
    ...Array.from(
      { length: 30 },
      () => 'Some more words, as many as a line of a message has as a rule, and then the next.',
    ),
    '',
  ].join('\r\n');
}
