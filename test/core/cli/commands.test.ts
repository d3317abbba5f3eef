import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { findCommand, pluginCall, readCommandLine } from '../../../core/cli/command-line.js';
import { systemClock } from '../../../core/clock.js';
import { builtIns } from '../../../core/main.js';
import { isStartError } from '../../../core/problem.js';
import { usageRow } from '../../../core/text/columns.js';
import { builtInCommands } from '../../../plugins/commands.js';
import { withoutJson } from '../../support/commands.js';

const ofPlugins = builtIns.flatMap((plugin) =>
  plugin.commands.map((command) => ({ command, options: plugin.options })),
);

const isWrongUsage = (error: unknown): boolean => isStartError(error) && error.exitStatus === 2;

describe('every command', () => {
  test('that prints data has --json', () => {
    const without = [
      ...builtInCommands.filter(({ flags = [] }) => !flags.includes('json')).map(({ words }) => words),
      ...ofPlugins.flatMap(({ command: { flags = [], usage } }) =>
        usage.filter((line) => !flags.includes('json') || !line.includes('[--json]')),
      ),
    ];
    assert.deepEqual(without.toSorted(), Object.keys(withoutJson).toSorted());
  });

  test('that works without a configuration has exit status 2 for wrong words and flags', () => {
    for (const { words, takes = [] } of builtInCommands) {
      const needed = takes.filter((name) => !name.startsWith('['));
      const calls = [
        [...takes, 'more'],
        [...needed, '--no-such-flag'],
        ...(needed.length === 0 ? [] : [needed.slice(1)]),
      ];
      for (const more of calls) {
        const typed = [...words.split(' '), ...more];
        assert.throws(() => findCommand(builtInCommands, readCommandLine(typed)), isWrongUsage, typed.join(' '));
      }
    }
  });

  test('of a plugin has exit status 2 for wrong words and flags, also when no server runs', async () => {
    for (const { command, options } of ofPlugins) {
      const { name, usage } = command;
      assert.throws(() => pluginCall(command, [name, '--no-such-flag']), isWrongUsage, name);
      for (const line of usage) {
        const [, verb = '', ...takes] = usageRow(line)
          .synopsis.replace(/ \[--[^\]]*\]/g, '')
          .split(' ');
        const words = /^[a-z]/.test(verb) ? [verb] : [];
        const wrong = line.includes('…') ? [[...words, 'id', 'key=value']] : [[...words, 'a', 'b', 'c', 'd']];
        if (takes.length > 0 && !line.includes('[KEY')) wrong.push(words);
        for (const args of [...wrong, ['no-such-verb', 'x']]) {
          const run = command.run({
            args,
            values: {},
            options: options.safeParse({}).data ?? {},
            configuration: { data: '/nowhere', domains: ['example.org'], hostname: 'mx1' },
            terminal: {
              interactive: false,
              print: () => assert.fail('it prints'),
              ask: () => assert.fail('it asks'),
              askSecret: () => assert.fail('it asks'),
            },
            clock: systemClock,
            owner: undefined,
          });
          await assert.rejects(run, isWrongUsage, `${name} ${args.join(' ')}`);
        }
      }
    }
  });
});
