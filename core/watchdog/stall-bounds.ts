/** Stalls kept in the record. Apart from the schema, so that the watching thread does not load zod. */
export const maxStalls = 20;
/** Characters kept of a frame. */
export const maxFrameCharacters = 300;
