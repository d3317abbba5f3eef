/** An item of a heap. It knows its index, so that it can be removed from the middle. */
export interface Due {
  /** Milliseconds since the epoch. */
  due: number;
  /** Index in its heap; negative when it is in none. */
  place: number;
}

export const nowhere = -1;

/** Earliest first; insertion and removal take logarithmic time. */
export class DueHeap<T extends Due> {
  readonly #items: T[] = [];

  get first(): T | undefined {
    return this.#items[0];
  }

  get size(): number {
    return this.#items.length;
  }

  add(item: T): void {
    this.#items.push(item);
    this.#rise(item, this.#items.length - 1);
  }

  /** Removes the item; does nothing when it is in no heap. */
  remove(item: T): void {
    const { place } = item;
    if (place < 0) return;
    item.place = nowhere;
    const last = this.#items.pop();
    if (last === undefined || last === item) return;
    this.#settle(last, place);
  }

  /** Restores the order after the item's time has changed. */
  moved(item: T): void {
    if (item.place >= 0) this.#settle(item, item.place);
  }

  #settle(item: T, place: number): void {
    this.#rise(item, place);
    if (item.place === place) this.#sink(item, place);
  }

  #rise(item: T, from: number): void {
    let at = from;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = this.#items[above];
      if (parent === undefined || parent.due <= item.due) break;
      this.#put(parent, at);
      at = above;
    }
    this.#put(item, at);
  }

  #sink(item: T, from: number): void {
    let at = from;
    for (;;) {
      const left = this.#items[2 * at + 1];
      const right = this.#items[2 * at + 2];
      const child = right !== undefined && left !== undefined && right.due < left.due ? right : left;
      if (child === undefined || child.due >= item.due) break;
      const below = child.place;
      this.#put(child, at);
      at = below;
    }
    this.#put(item, at);
  }

  #put(item: T, at: number): void {
    this.#items[at] = item;
    item.place = at;
  }
}
