/** Commands whose output is no data, or is for programs as it is. */
export const withoutJson: Readonly<Record<string, string>> = {
  start: 'runs until it is stopped',
  call: 'prints the answer of the server, which is JSON where the endpoint has it',
  'config schema': 'prints JSON',
  'config reference': 'prints a document; config schema has the same as JSON',
  'plugin test': 'prints what the tests of the plugin print',
};
