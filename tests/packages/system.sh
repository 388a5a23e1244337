#!/usr/bin/env bash
# Runs `tools/test` in a new system, in which tools/setup installs what it needs. Exits with 77 if this user or system cannot do that.
#
#   system.sh SUITE SOURCE      e.g. system.sh trixie .
set -euo pipefail
suite=$1 source=$(readlink -f "$2")

command -v mmdebstrap >/dev/null || { echo 'skipped: there is no mmdebstrap'; exit 77; }
[ "$(id -u)" = 0 ] || { echo 'skipped: requires root'; exit 77; }

work=$(mktemp -d)
leave() {
  for mounted in dev/ptmx dev/pts dev/shm proc; do umount "$work/system/$mounted" 2>/dev/null || true; done
  rm -rf --one-file-system "$work"
}
trap leave EXIT
chmod 755 "$work"
mmdebstrap --quiet --variant=apt --include=git,ca-certificates "$suite" "$work/system"
# Tests with launchers need the name of the machine.
echo "127.0.1.1 $(hostname)" >>"$work/system/etc/hosts"
git clone --quiet "$source" "$work/system/weft"
mount -t proc proc "$work/system/proc"
mount -t tmpfs tmpfs "$work/system/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$work/system/dev/pts"
mount --bind "$work/system/dev/pts/ptmx" "$work/system/dev/ptmx"
chroot "$work/system" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 CI="${CI-}" /weft/tools/test
