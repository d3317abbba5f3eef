/** What enhanced status codes (RFC 3463) mean, in words for people; the longest that fits counts. */
const sentences: Readonly<Record<string, string>> = {
  '1.0': 'Something is wrong with the address.',
  '1.1': 'There is no such mailbox. Please look whether the address is spelled right.',
  '1.2':
    'The part of the address behind the "@" does not exist, or takes no mail. Please look whether it is spelled right.',
  '1.3': 'The address is not written as addresses are.',
  '1.6': 'The mailbox has moved, and where to is not known.',
  '1.7': 'The other server does not like the address that the message comes from.',
  '1.8': 'The domain that the message comes from is not known there.',
  '1.10': 'The domain of the address takes no mail at all.',
  '2.0': 'Something is wrong with the mailbox.',
  '2.1': 'The mailbox is switched off.',
  '2.2': 'The mailbox is full.',
  '2.3': 'The message is too large for this mailbox.',
  '3.1': 'The other server has no room for mail.',
  '3.4': 'The message is too large for the other server.',
  '4.0': 'The other server could not be reached.',
  '4.1': 'The other server could not be reached.',
  '4.2': 'The connection to the other server was lost.',
  '4.3': 'The name service that tells where the mail has to go could not be asked.',
  '4.4': 'It is not known which server takes the mail of this domain.',
  '4.6': 'The message goes round in circles between servers.',
  '4.7': 'The message was tried for a long time, and the other server did not take it.',
  '5.3': 'There were too many recipients for the other server.',
  '6.3': 'The other server cannot take the characters of this message.',
  '6.7': 'The other server does not take addresses with such characters.',
  '7.0': 'The other server does not take this message, by its rules.',
  '7.1': 'The other server does not take this message, by its rules.',
  '7.8': 'The other server did not accept the sign-in of this server.',
};

const subjects: Readonly<Record<string, string>> = {
  '0': 'The other server gave no reason.',
  '1': 'Something is wrong with the address.',
  '2': 'Something is wrong with the mailbox.',
  '3': 'The other server has difficulties.',
  '4': 'The mail could not be brought to the other server.',
  '5': 'The two servers did not understand each other.',
  '6': 'The other server cannot take the content of this message.',
  '7': 'The other server does not take this message, by its rules.',
};

export function explainStatus(status: string): string {
  const [, subject = '0', detail = '0'] = status.split('.');
  const temporary = status.startsWith('4.') ? 'For now: ' : '';
  const sentence = sentences[`${subject}.${detail}`] ?? subjects[subject] ?? 'The other server gave no reason.';
  return `${temporary}${temporary === '' ? sentence : sentence.charAt(0).toLowerCase() + sentence.slice(1)}`;
}
