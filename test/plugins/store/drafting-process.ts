/** A process that saves one draft without end and prints each version once it is acknowledged, to be killed. */
import { change, ann, openDrafts, upload } from './draft-fixture.js';

const [, , data = '', draftId = ''] = process.argv;
const { drafts } = await openDrafts({ after: () => undefined }, data);
for (let n = 1; ; n++) {
  if (n % 3 === 0) await drafts.attach(ann, draftId, [upload(`file-${n}`, `content ${n}`)]);
  else await drafts.update(ann, draftId, change({ text: `text ${n}` }));
  process.stdout.write(`${n}\n`);
}
