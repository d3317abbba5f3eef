#!/bin/sh
# Copies the data folder of a server, running or not:  backup.sh DATA COPY [PREVIOUS]
# COPY is a new folder; what has not changed since the copy PREVIOUS is linked instead of copied. docs/backup.md says why it
# goes in this order, and how to restore.
set -eu
if [ $# -lt 2 ] || [ ! -d "$1" ] || [ -e "$2" ]; then
  echo 'usage: backup.sh DATA COPY [PREVIOUS]    (DATA exists, COPY does not yet)' >&2
  exit 2
fi
if ! command -v rsync >/dev/null; then
  echo 'backup.sh: rsync is not installed' >&2
  exit 2
fi
data=$(cd "$1" && pwd)
previous=
if [ -d "${3:-}" ]; then
  previous=$(cd "$3" && pwd)
elif [ $# -gt 2 ]; then
  echo "backup.sh: there is no $3, so everything is copied" >&2
fi
umask 077
mkdir "$2"
copy=$(cd "$2" && pwd)

# Files that go while they are copied (24) are messages that were moved, marked or sent.
take() {
  rsync --archive --hard-links ${previous:+--link-dest="$previous"} --relative "$@" "$copy/" || [ $? -eq 24 ]
}

cd "$data"
# Messages never change, but they are renamed: one that was behind the reader when it was marked or moved is missed. So the mailboxes
# in which something changed during a pass are taken once more, until there are none, or twenty times. Nothing is deleted.
if [ -d mail ]; then
  changed=./mail
  for pass in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    began=$(date +%s.%N)
    sleep 0.05 # the clock of a file system goes in ticks
    printf '%s\n' "$changed" | take --recursive --ignore-missing-args --files-from=- .
    changed=$(find ./mail -type d -path './mail/*/*' -newermt "@$began" | cut -d / -f 1-4 | sort -u)
    [ -n "$changed" ] || break
  done
fi
# Of a message that was marked between the passes both names are there: the one that came last is right.
if [ -d "$copy/mail" ]; then
  find "$copy/mail" -type f \( -path '*/new/*' -o -path '*/cur/*' \) -printf '%C@\t%h\t%f\n' | sort --reverse --numeric-sort |
    awk -F '\t' '{ name = $3; folder = $2; sub(/:2,.*$/, "", name); sub(/\/(new|cur)$/, "", folder) }
      seen[folder "/" name]++ { print $2 "/" $3 }' |
    while IFS= read -r older; do rm -f "$older"; done
fi
# Messages; the journal before the snapshots, which may hold more but never less; and the messages that came meanwhile, when the
# last of them have got their files, which takes two seconds, on a busy machine longer: an entry without its message would be held.
if [ -d queue ]; then
  take --exclude=journal --exclude='snapshot-*' ./queue
  take ./queue/journal
  take --include=/queue/ --include='/queue/snapshot-*' --exclude='*' ./queue
  sleep 10
  take --exclude=journal --exclude='snapshot-*' ./queue
fi
# Users last, so that every mailbox that was copied belongs to a user who was copied.
take --exclude=/mail --exclude=/queue --exclude=/spool --exclude=/spool-log --exclude=/uploads --exclude=/drafts \
  --exclude=/cache --exclude=/logs --exclude=/heapdumps --exclude=/lost+found --exclude='/postern.lock*' --exclude='/.*' ./
