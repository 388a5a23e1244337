#!/usr/bin/env bash
# Builds the Debian packages in a new system, installs them in another one, and runs their tests there. Exits with 77 if this user or system
# cannot do that.
#
#   debian.sh SUITE SOURCE      e.g. debian.sh bookworm .
set -euo pipefail
suite=$1 source=$(readlink -f "$2")
unset CC CXX   # new systems have no ccache

for tool in autopkgtest mmdebstrap; do
  command -v $tool >/dev/null || { echo "skipped: there is no $tool"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo 'skipped: requires root'; exit 77; }

work=$(mktemp -d)
leave() {
  umount "$work/system/proc" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap leave EXIT
chmod 755 "$work"
mkdir "$work/weft" "$work/packages"
git -C "$source" ls-files -z | tar -C "$source" --null -T - -c | tar -C "$work/weft" -x

mmdebstrap --quiet --variant=buildd --format=null --customize-hook='mkdir "$1/build"' --customize-hook="copy-in $work/weft /build" \
  --chrooted-customize-hook='cd /build/weft && apt-get -qq -y --no-install-recommends build-dep ./ && dpkg-buildpackage -b -us -uc' \
  --customize-hook='cd "$1/build" && cp ./*.deb "'"$work"'/packages"' "$suite" /dev/null
ls -l "$work/packages"
size=$(dpkg-deb --contents "$work"/packages/libweft0_*.deb | awk '/^-.*libweft\.so\.0/ { print $3 }')
echo "libweft: $size bytes"
mmdebstrap --quiet --variant=apt --include=apt-utils,dpkg-dev "$suite" "$work/system"
mount -t proc proc "$work/system/proc"
autopkgtest --apt-upgrade --no-built-binaries "$work"/packages/*.deb "$work/weft/" -- chroot "$work/system"
