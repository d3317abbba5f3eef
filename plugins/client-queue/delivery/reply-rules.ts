import type { ReplyRule } from './reply-classification.js';

/**
 * What servers mean by their replies, the first that fits. The first digit of a reply decides whether mail is tried again; these only
 * say why, and how long to wait. Patterns are of RE2, without regard to case, and occur somewhere in `code status text`.
 */
export const replyRules: readonly ReplyRule[] = [
  {
    name: 'too-many-recipients',
    pattern: '^(452|552) .*too many recipients|^45[0-9] 4[.]5[.]3',
    category: 'capacity',
    retryAfter: 5,
  },
  {
    name: 'greylisted',
    pattern: 'gr[ae]y.?list|^4[0-9][0-9] .*(first time|try again in \\d+ (sec|min)|please retry)',
    category: 'greylist',
    codes: '4',
    retryAfter: 300,
  },
  {
    name: 'rate',
    pattern:
      '(rate|sending|connection|message).{0,20}limit|too (many|fast|much) (connection|message|mail|concurrent|session|error)|throttl|4[.]7[.]28|slow down|exceed.{0,30}(rate|hourly|quota of messages)',
    category: 'rate',
    retryAfter: 900,
  },
  {
    name: 'block-list',
    pattern:
      'block.?list|black.?list|\\b(dnsbl|rbl|spamhaus|spamcop|barracuda|sorbs|uceprotect)\\b|blocked using|poor reputation|bad reputation',
    category: 'blacklist',
  },
  {
    name: 'authentication-policy',
    pattern: '\\b(spf|dkim|dmarc)\\b|5[.]7[.]2[0-9]\\b|unauthenticated (email|mail|sender)',
    category: 'policy',
  },
  {
    name: 'spam',
    pattern:
      '\\bspam(my|mer|ming)?\\b|\\bjunk mail|\\bbulk mail|\\bphish|content.{0,20}(reject|refus|filter)|suspicious|\\bvirus|\\bmalware|unsolicited',
    category: 'spam',
  },
  {
    name: 'mailbox-full',
    pattern:
      '[45][.]2[.]2\\b|(mail)?box.{0,20}(is )?full|over.?quota|quota.{0,20}exceed|exceed.{0,20}quota|insufficient (mailbox|user) storage',
    category: 'capacity',
    retryAfter: 3600,
  },
  {
    name: 'unknown-recipient',
    pattern:
      '[45][.]1[.][1236]\\b|(user|recipient|mailbox|account|address).{0,30}(unknown|not (found|exist|known)|does.?n.t exist|no longer|invalid|unavailable|disabled|inactive)|(no such|unknown|invalid|bad) (user|recipient|mailbox|account|address|destination)|nosuchuser',
    category: 'recipient',
  },
  { name: 'mailbox-disabled', pattern: '5[.]2[.]1\\b', category: 'recipient' },
  {
    name: 'no-such-domain',
    pattern: '5[.]1[.](2|10)\\b|5[.]4[.]4\\b|host or domain.{0,20}not found|null mx',
    category: 'recipient',
  },
  { name: 'relay', pattern: 'relay(ing)?.{0,20}(denied|not (permitted|allowed))|not.{0,20}relay', category: 'policy' },
  {
    name: 'message-size',
    pattern: '[45][.](3[.]4|2[.]3)\\b|(message|mail|size).{0,30}(too (large|big)|exceed)',
    category: 'capacity',
  },
  {
    name: 'disk',
    pattern:
      '4[.]3[.]1\\b|insufficient system (storage|resources)|(disk|space).{0,20}full|out of (disk|space|memory)|no space',
    category: 'capacity',
    retryAfter: 900,
  },
  { name: 'loop', pattern: '[45][.]4[.]6\\b|too many hops|mail loop|loops? back', category: 'network' },
  {
    name: 'network',
    pattern: '4[.]4[.][0-9]+\\b|timed? ?out|connection (refused|reset|lost|closed)|unreachable|no route',
    category: 'network',
  },
  {
    name: 'server-busy',
    pattern:
      '^421 |4[.]3[.][02]\\b|(service|server).{0,30}(unavailable|busy|overload|not available)|too busy|try (again )?later|temporar',
    category: 'network',
  },
  {
    name: 'encryption',
    pattern: '[45][.]7[.](10|11)\\b|starttls|must (use|issue).{0,20}tls|certificate',
    category: 'policy',
  },
  {
    name: 'sign-in',
    pattern: '^5(30|34|35|38) |[45][.]7[.]8\\b|authentication (required|failed|credentials)',
    category: 'policy',
  },
  {
    name: 'policy',
    pattern:
      '[45][.]7[.][0-9]+\\b|polic(y|ies)|not (authori[sz]ed|permitted|allowed|accepted)|access denied|reject(ed)? (by|for)|refus(ed|al)|prohibit',
    category: 'policy',
  },
  { name: 'international', pattern: '[45][.]6[.]([1-9]|10)\\b|smtputf8|8bitmime', category: 'policy' },
  {
    name: 'protocol',
    pattern: '[45][.]5[.][0-9]+\\b|syntax error|bad sequence|command (not|un)',
    category: 'protocol',
  },
];
