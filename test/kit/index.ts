/**
 * `postern/testing`: tests of a plugin without a network. See docs/testing-plugins.md.
 */
export { drive, type DriveOptions } from './drive.js';
export type { DrivenSite, LogLine, RenderedPage, SessionOptions } from './driven-site.js';
export type { CommandResult } from './command-run.js';
export type { ClientAnswer } from './client-answer.js';
export type { DeliveredMail } from './delivered-mail.js';
export { FakeClock, type Span } from './fake-clock.js';
export { FakeDns, type FakeAnswer, type FakeFailure, type FakeZone } from './fake-dns.js';
export type { CallOptions, HttpAnswer } from './http-caller.js';
export { message, type MessageParts } from './message.js';
export type { Client, RecipientQuestion, Sender, Sending } from './sending.js';
export { relayQueueContract } from './relay-queue/contract.js';
export type { OpenQueueHarness, QueueHarness } from './relay-queue/harness.js';
export type { SmtpTestSession } from './smtp-session.js';
export type { EventAbout, EventDraft } from './transaction-draft.js';
