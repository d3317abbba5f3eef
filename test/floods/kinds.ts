import type { Kind } from './flood.js';
import { connectionKinds } from './connection-kinds.js';
import { mailKinds } from './mail-kinds.js';
import { requestKinds } from './request-kinds.js';
import { smtpKinds } from './smtp-kinds.js';

export const kinds: readonly Kind[] = [...connectionKinds, ...requestKinds, ...smtpKinds, ...mailKinds];
