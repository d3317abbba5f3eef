/** Version of the contract between a plugin and the server: a new minor version adds, a new major one takes away. */
export const kitVersion = '1.0';

/** The kits that this server speaks, the oldest and the newest. */
export interface KitRange {
  readonly oldest: string;
  readonly newest: string;
}

const spoken: KitRange = { oldest: '1.0', newest: kitVersion };

/**
 * Why a plugin that was written for that version of the kit cannot run here, and what to do; undefined when it can.
 *
 * @param wanted `major.minor`, as the plugin says; a whole number is a major version
 */
export function kitComplaint(wanted: unknown, { oldest, newest }: KitRange = spoken): string | undefined {
  const version = parse(wanted);
  const speaks = oldest === newest ? `version ${newest}` : `versions ${oldest} to ${newest}`;
  if (version === undefined) {
    return `names ${JSON.stringify(wanted) ?? 'nothing'} as its version of the plugin kit; write kit: '${newest}'.`;
  }
  const written = `is written for version ${String(wanted)} of the plugin kit, and this server speaks ${speaks}`;
  if (isBelow(parse(newest), version)) return `${written}: update Postern, or use an older version of the plugin.`;
  if (isBelow(version, parse(oldest))) return `${written}: use a newer version of the plugin.`;
  return undefined;
}

type Version = readonly [major: number, minor: number];

function parse(version: unknown): Version | undefined {
  const text = typeof version === 'number' ? `${version}.0` : version;
  const [, major, minor] = (typeof text === 'string' && /^(\d{1,4})\.(\d{1,4})$/.exec(text)) || [];
  return major === undefined || minor === undefined ? undefined : [Number(major), Number(minor)];
}

const isBelow = ([major, minor]: Version = [0, 0], [otherMajor, otherMinor]: Version = [0, 0]): boolean =>
  major < otherMajor || (major === otherMajor && minor < otherMinor);
