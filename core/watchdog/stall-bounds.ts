/** So many stalls are remembered. */
export const mostStalls = 20;
/** Characters of a frame. */
export const longestFrame = 300;
