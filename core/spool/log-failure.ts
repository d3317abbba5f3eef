/** Nothing was written: there is no segment that could take it now. */
export class LogFull extends Error {}

/** It is not known whether the record is on the disk; at a replay it may appear. */
export class AppendFailed extends Error {
  readonly number: number;

  constructor(number: number, cause: unknown) {
    super('a record could not be appended', { cause });
    this.number = number;
  }
}
