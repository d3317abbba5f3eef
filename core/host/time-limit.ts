/** As the work ends; rejects with that sentence when it takes longer, and the work goes on alone. */
export function within<T>(ms: number, work: Promise<T>, sentence: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(sentence)), ms);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
