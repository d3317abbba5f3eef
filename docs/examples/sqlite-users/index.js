import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
// @ts-ignore: the types of Node.js 20 do not have it
import { DatabaseSync } from 'node:sqlite';
import { promisify } from 'node:util';
import { configuration, definePlugin, directory, parseAddress, problem, z } from 'postern/plugin';

const Options = z.strictObject({
  file: z.string().startsWith('/').optional().describe('Absolute path of the database; in the data folder if absent.'),
});

// NOCASE compares the letters A to Z alike and nothing else, so that no other letter passes for one of them.
const schema = `
  PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 1000; PRAGMA foreign_keys = ON;
  CREATE TABLE IF NOT EXISTS users (username TEXT PRIMARY KEY COLLATE NOCASE, password TEXT NOT NULL,
    quota INTEGER, disabled INTEGER NOT NULL DEFAULT 0) STRICT;
  CREATE TABLE IF NOT EXISTS aliases (alias TEXT PRIMARY KEY COLLATE NOCASE,
    username TEXT NOT NULL COLLATE NOCASE REFERENCES users ON DELETE CASCADE) STRICT;`;

/** @type {(options: z.output<typeof Options>, data: string) => DatabaseSync} */
function open(options, data) {
  const file = options.file ?? join(data, 'sqlite-users', 'users.sqlite');
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const database = new DatabaseSync(file);
  database.exec(schema);
  return database;
}

/** What each word of the command does with a value and a name, and what it says when it finds nothing to change. */
const statements = new Map([
  ['add', ['INSERT OR IGNORE INTO users (password, username) VALUES (?1, ?2)', 'is there already']],
  ['password', ['UPDATE users SET password = ?1 WHERE username = ?2', 'is no user']],
  ['alias', ['INSERT OR REPLACE INTO aliases SELECT ?1, username FROM users WHERE username = ?2', 'is no user']],
  ['remove', ['DELETE FROM users WHERE ?1 = ?1 AND username = ?2', 'is no user']],
]);
const usage = ['add NAME', 'password NAME', 'alias NAME ALIAS', 'remove NAME'].map((one) => `postern sqlite ${one}`);

/** Users and aliases in a database of SQLite. */
export const sqliteUsers = definePlugin({
  name: 'sqlite-users',
  options: Options,
  needs: { configuration },
  provides: { directory },
  commands: [
    {
      name: 'sqlite',
      summary: 'Mail users in a database of SQLite',
      usage,
      async run({ args: [verb = '', name = '', alias = ''], options, configuration: { data }, terminal }) {
        const [statement = '', failure] = statements.get(verb) ?? [];
        if (statement === '') throw problem('invalid', `Usage: ${usage.join('\n')}`);
        const { address } = parseAddress(name);
        const isSecret = verb === 'add' || verb === 'password';
        const password = isSecret ? await terminal.askSecret('Password: ') : '';
        if (isSecret && password.length < 8) throw problem('invalid', 'A password has at least 8 characters.');
        const value = isSecret ? await hash(password) : alias;
        const database = open(options, data);
        const { changes } = database.prepare(statement).run(value, address);
        database.close();
        if (changes === 0) throw problem('conflict', `${address} ${failure}.`);
        terminal.print(`${address}: done`);
      },
    },
  ],
  async setup({ onClose }, { options, configuration }) {
    const database = open(options, configuration.data);
    onClose(() => database.close());
    const byName = database.prepare('SELECT * FROM users WHERE username = ?');
    const byAlias = database.prepare('SELECT u.* FROM aliases a JOIN users u USING (username) WHERE a.alias = ?');
    const all = database.prepare('SELECT * FROM users ORDER BY username');
    const aliasesOf = database.prepare('SELECT alias FROM aliases WHERE username = ? ORDER BY alias');
    const nobody = await hash(randomBytes(16).toString('hex')); // takes as long as the password of somebody

    const asUser = (/** @type {any} */ row) =>
      row && {
        username: row.username,
        address: parseAddress(row.username),
        aliases: aliasesOf.all(row.username).map((/** @type {any} */ { alias }) => alias),
        quota: row.quota,
        disabled: row.disabled !== 0,
      };
    /** @type {import('postern/plugin').Directory} */
    const users = {
      source: 'SQLite',
      find: (username) => asUser(byName.get(username)),
      resolve({ address, local, domain }) {
        const names = [address, `${local.replace(/\+.*/s, '')}@${domain}`, `@${domain}`];
        return asUser(names.map((name) => byName.get(name) ?? byAlias.get(name)).find((row) => row));
      },
      list: () => Promise.resolve(all.all().map(asUser)),
      async authenticate(username, password) {
        const row = byName.get(username);
        const isRight = await isPasswordOf(row?.password ?? nobody, password);
        return row && isRight && row.disabled === 0 ? asUser(row) : undefined;
      },
    };
    return { directory: users };
  },
});

/** @type {(password: string, salt: string, bytes: number, options: import('node:crypto').ScryptOptions) => Promise<Buffer>} */
const derive = promisify(scrypt);

/** As it is stored: `scrypt:cost:salt:key`. */
async function hash(/** @type {string} */ password, cost = 32_768, salt = randomBytes(16).toString('hex')) {
  const key = await derive(password, salt, 32, { N: cost, maxmem: 2048 * cost });
  return `scrypt:${cost}:${salt}:${key.toString('hex')}`;
}

async function isPasswordOf(/** @type {string} */ stored, /** @type {string} */ password) {
  const [, cost, salt] = stored.split(':');
  const given = await hash(password, Number(cost), salt);
  return given.length === stored.length && timingSafeEqual(Buffer.from(given), Buffer.from(stored));
}
