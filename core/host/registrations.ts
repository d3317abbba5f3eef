type Undo = () => void;

/**
 * What one plugin has registered. Collected while `setup` runs and put into force together afterwards, so that a setup
 * which fails leaves nothing, and a plugin can be swapped for its successor in one step.
 */
export class Registrations {
  readonly #staged: (() => Undo)[] = [];
  readonly #undo: Undo[] = [];
  #active = false;

  /** `register` runs when the plugin becomes active, and what it returns when it stops. What is refused is not kept. */
  add(register: () => Undo): void {
    if (this.#active) this.#undo.push(register());
    this.#staged.push(register);
  }

  /** All or nothing: when one fails, those before it are undone. May be called again after `deactivate`. */
  activate(): void {
    try {
      for (const register of this.#staged) this.#undo.push(register());
      this.#active = true;
    } catch (error) {
      this.deactivate();
      throw error;
    }
  }

  deactivate(): void {
    this.#active = false;
    for (let undo = this.#undo.pop(); undo !== undefined; undo = this.#undo.pop()) undo();
  }
}
