import type { PluginContext } from '../../plugin.js';

type Metrics = PluginContext['metrics'];

const messageBuckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300] as const;

const replyClasses = ['2xx', '3xx', '4xx', '5xx'] as const;

type AuthResult = 'accepted' | 'refused' | 'deferred';

const messageResults = ['accepted', 'deferred', 'refused', 'aborted'] as const;

export type MeteredResult = (typeof messageResults)[number];

/** Counts what the sessions of one listener do. Label children are looked up once, not per command. */
export interface ListenerMeter {
  opened(): void;
  closed(): void;
  refused(): void;
  secured(): void;
  replied(code: number): void;
  received(bytes: number): void;
  signedIn(result: AuthResult): void;
  message(result: MeteredResult, seconds: number): void;
}

/** Metrics of SMTP receiving; `meter` returns the part of one listener. */
export class EngineMetrics {
  readonly meter: (listener: string) => ListenerMeter;

  constructor(metrics: Metrics) {
    const sessions = metrics.gauge('smtp_sessions_open', 'SMTP sessions that are open.', ['listener']);
    const opened = metrics.counter('smtp_sessions_total', 'SMTP sessions that were opened.', ['listener']);
    const refused = metrics.counter('smtp_sessions_refused_total', 'SMTP connections refused by a limit or a hook.', [
      'listener',
    ]);
    const secured = metrics.counter('smtp_tls_sessions_total', 'SMTP sessions that use TLS.', ['listener']);
    const replied = metrics.counter('smtp_replies_total', 'SMTP replies by class.', ['listener', 'class']);
    const received = metrics.counter('smtp_received_bytes_total', 'Bytes received over SMTP.', ['listener']);
    const signedIn = metrics.counter('smtp_auth_total', 'Attempts to sign in over SMTP.', ['listener', 'result']);
    const messages = metrics.counter('smtp_messages_total', 'Messages by result.', ['listener', 'result']);
    const seconds = metrics.histogram(
      'smtp_message_seconds',
      'From DATA or the first BDAT to the answer to the message.',
      messageBuckets,
      ['listener'],
    );

    this.meter = (listener) => {
      const open = sessions.labels({ listener });
      const total = opened.labels({ listener });
      const bytes = received.labels({ listener });
      const duration = seconds.labels({ listener });
      const classes = replyClasses.map((name) => replied.labels({ listener, class: name }));
      const results = new Map(messageResults.map((result) => [result, messages.labels({ listener, result })]));
      return {
        opened: () => {
          open.inc();
          total.inc();
        },
        closed: () => open.dec(),
        refused: () => refused.inc({ listener }),
        secured: () => secured.inc({ listener }),
        replied: (code) => classes[Math.floor(code / 100) - 2]?.inc(),
        received: (count) => bytes.inc(count),
        signedIn: (result) => signedIn.inc({ listener, result }),
        message: (result, took) => {
          results.get(result)?.inc();
          duration.observe(took);
        },
      };
    };
  }
}
