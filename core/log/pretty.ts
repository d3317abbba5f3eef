/** Fields of every line that the pretty form places itself. */
const placed = new Set(['level', 'time', 'plugin', 'msg']);

/**
 * A line of the log for a person at a terminal: `00:32:59 warn  store: cannot read the folder  code="EACCES"`.
 *
 * @param line one JSON object, already redacted
 */
export function prettyLine(line: string): string {
  return lineWith(line, (time) => time.slice(11, 19));
}

/** The same with date and milliseconds, for a file or a pipe. */
export function fullLine(line: string): string {
  return lineWith(line, (time) => time);
}

function lineWith(line: string, clockOf: (time: string) => string): string {
  const fields = parse(line);
  if (fields === undefined) return `${visible(line.replace(/\n$/, ''))}\n`;
  const { level, time, plugin, msg } = fields;
  const rest = Object.entries(fields)
    .filter(([name]) => !placed.has(name))
    .map(([name, value]) => ` ${visible(name)}=${visible(JSON.stringify(value) ?? '')}`);
  const clock = typeof time === 'string' ? visible(clockOf(time)) : '';
  const who = typeof plugin === 'string' ? `${visible(plugin)}: ` : '';
  return `${clock} ${visible(String(level)).padEnd(5)} ${who}${visible(typeof msg === 'string' ? msg : '')}${rest.join('')}\n`;
}

function parse(line: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}

/** A terminal obeys control characters: they are shown as escapes. */
const visible = (text: string): string =>
  text.replace(
    /[\p{Cc}\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
