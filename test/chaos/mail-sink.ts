import { createHash } from 'node:crypto';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { setPriority } from 'node:os';

/**
 * Where whole servers deliver: SMTP in a process of its own that is never disturbed. It writes a line for each arrival:
 * Message-ID, name in EHLO, time of the dot, whether the body is what `X-Hash` says, and the recipients. It defers each
 * recipient at `later.example` once, and refuses those at `gone.example`. Its first line is its port. It takes the
 * milliseconds of its argument for 354, and again for the reply to the dot.
 */
const waitMs = Number(process.argv[2] ?? 0);
const now = (): number => performance.timeOrigin + performance.now();
const deferred = new Set<string>();

function replyTo(line: string, recipients: string[]): string {
  const [, address] = /^RCPT TO:<([^>]*)>/i.exec(line) ?? [];
  if (address === undefined) return /^EHLO/i.test(line) ? '250-sink\r\n250-8BITMIME\r\n250 SIZE' : '250 ok';
  if (address.endsWith('@gone.example')) return '550 5.1.1 gone';
  if (address.endsWith('@later.example') && !deferred.has(address)) {
    deferred.add(address);
    return '450 4.2.0 later';
  }
  recipients.push(address);
  return '250 ok';
}

function arrived(text: Buffer, node: string, recipients: readonly string[], at: number): void {
  const head = text.subarray(0, text.indexOf('\r\n\r\n')).toString('latin1');
  const field = (name: string): string => new RegExp(`^${name}: <?([^>\r\n]*)`, 'im').exec(head)?.[1] ?? '';
  const hash = createHash('sha256')
    .update(text.subarray(head.length + 4))
    .digest('hex');
  const whole = field('X-Hash') === hash;
  process.stdout.write(`${field('Message-ID')}\t${node}\t${at}\t${whole}\t${recipients.join(' ')}\n`);
}

const dot = Buffer.from('\r\n.\r\n');

function serve(socket: Socket): void {
  let node = '';
  let pieces: Buffer[] = [];
  let recipients: string[] = [];
  let inText = false;
  socket.on('error', () => socket.destroy());
  const say = (line: string): void => void socket.write(`${line}\r\n`);
  const sayLater = (line: string): void => void setTimeout(() => say(line), waitMs);
  socket.on('data', (bytes: Buffer) => {
    const at = now();
    pieces.push(bytes);
    // The end of a text is seen without putting all of it together each time.
    if (inText && !Buffer.concat(pieces.slice(-4)).includes(dot)) return;
    let held = Buffer.concat(pieces);
    for (;;) {
      const end = held.indexOf(inText ? dot : '\r\n');
      if (end < 0) break;
      const piece = held.subarray(0, inText ? end + 2 : end);
      held = held.subarray(end + (inText ? dot.length : 2));
      if (inText) {
        arrived(piece, node, recipients, at);
        inText = false;
        sayLater('250 ok');
        continue;
      }
      const line = piece.toString('latin1');
      if (/^EHLO /i.test(line)) node = line.slice(5);
      if (/^MAIL /i.test(line)) recipients = [];
      inText = /^DATA$/i.test(line) && recipients.length > 0;
      if (inText) sayLater('354 go on');
      else say(/^DATA$/i.test(line) ? '503 no recipients' : replyTo(line, recipients));
    }
    pieces = held.length > 0 ? [held] : [];
  });
  say('220 sink');
}

try {
  // It is to see an arrival when it comes, on a loaded machine too.
  setPriority(-10);
} catch {
  // Only root may.
}
// What the killed nodes have written is read first.
process.on('disconnect', () => setTimeout(() => process.exit(), 300));
const server = createServer({ noDelay: true }, serve);
server.listen(0, '127.0.0.1', () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`));
