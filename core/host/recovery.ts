import type { DeliveryTarget } from '../contracts/delivery-target.js';
import { nodeFiles } from '../disk/file-layer.js';
import { findWherePlaced, type FindPlaced } from '../spool/restoration.js';

/** Asks the target that placed a message where it is now; a target that cannot tell leaves messages where it placed them. */
export function findByOwner(targets: { target(name: string): DeliveryTarget | undefined }): FindPlaced {
  const wherePlaced = findWherePlaced(nodeFiles);
  const finders = new Map<string | undefined, FindPlaced>();
  return (placement, content) => {
    const { owner } = placement;
    const target = owner === undefined ? undefined : targets.target(owner);
    const find = finders.get(owner) ?? target?.finder?.() ?? wherePlaced;
    finders.set(owner, find);
    return find(placement, content);
  };
}
