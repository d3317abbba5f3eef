import { createServer, type AddressInfo, type Socket } from 'node:net';
import { setPriority } from 'node:os';

/**
 * Where the nodes deliver: a server of SMTP in a process of its own that takes everything, and is never disturbed. It
 * writes a line for each arrival: Message-ID, name in EHLO, `X-Token`, and the time. Its first line is its port. It
 * takes the milliseconds of its argument for 354, and again for the reply to the dot.
 */
const waitMs = Number(process.argv[2] ?? 0);
const now = (): number => performance.timeOrigin + performance.now();

function serve(socket: Socket): void {
  let node = '';
  let held = '';
  let inText = false;
  socket.on('error', () => socket.destroy());
  socket.setEncoding('latin1').on('data', (bytes: string) => {
    const at = now();
    held += bytes;
    for (;;) {
      const end = held.indexOf(inText ? '\r\n.\r\n' : '\r\n');
      if (end < 0) return;
      const piece = held.slice(0, end);
      held = held.slice(end + (inText ? 5 : 2));
      if (inText) {
        const field = (name: string): string => new RegExp(`^${name}: <?([^>\r\n]*)`, 'im').exec(piece)?.[1] ?? '';
        process.stdout.write(`${field('Message-ID')}\t${node}\t${field('X-Token')}\t${at}\n`);
      } else if (/^EHLO /i.test(piece)) node = piece.slice(5);
      const wasText = inText;
      inText = !inText && /^DATA$/i.test(piece);
      if (inText) setTimeout(() => socket.write('354 go on\r\n'), waitMs);
      else if (wasText) setTimeout(() => socket.write('250 ok\r\n'), waitMs);
      else socket.write('250 ok\r\n');
    }
  });
  socket.write('220 sink\r\n');
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
