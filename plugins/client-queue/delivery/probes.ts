/** Share of the connections that sites may hold which have not answered lately. */
const share = 0.75;

/**
 * Counts what is tried at sites that have not answered lately. They may hang for long, so that a part of the connections is kept for
 * those that answer.
 */
export class Probes {
  /** Tokens of leases. */
  readonly #underWay = new Set<number>();
  #most = 0;
  #left = 0;
  #before = 0;

  /** A claim begins. */
  begin(maxConnections: number): void {
    this.#most = Math.ceil(maxConnections * share);
    this.#before = this.#underWay.size;
    this.#left = this.#most - this.#before;
  }

  /** How much of its room such a site may have in this claim. */
  grant(room: number): number {
    const granted = Math.max(0, Math.min(room, this.#left));
    this.#left -= granted;
    return granted;
  }

  took(token: number): void {
    this.#underWay.add(token);
  }

  ended(token: number): void {
    this.#underWay.delete(token);
  }

  /** Some had no room because others were granted more than they took: the next claim may find more. */
  get mayGrantMore(): boolean {
    const { size } = this.#underWay;
    return this.#left <= 0 && size > this.#before && size < this.#most;
  }
}
