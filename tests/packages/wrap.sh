#!/usr/bin/env bash
# Builds a Meson project whose wrap file names a clone of weft, and runs its program.
#
#   wrap.sh SOURCE
set -euo pipefail
source=$(readlink -f "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source/tests/consumers/meson" "$work/consumer"
mkdir "$work/consumer/subprojects"
sed "s|@URL@|file://$source|" "$source/packaging/weft.wrap" >"$work/consumer/subprojects/weft.wrap"
meson setup --wrap-mode=forcefallback "-Dexamples=$source/examples" "$work/build" "$work/consumer"
ninja -C "$work/build" embed
"$work/build/embed"
