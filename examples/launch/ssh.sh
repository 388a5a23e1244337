#!/usr/bin/env bash
# Trains with rank 0 on this machine and one rank on each host of a file, which ssh starts. See weft-launch(7).
#
#   ssh.sh HOSTS ADDRESS MODEL [OPTION of weft train]...
#
# HOSTS has one host per line. ADDRESS is an address of this machine that the hosts can reach. weft must be in the PATH of each host, and ssh
# must not ask for a password.
set -euo pipefail
if [ $# -lt 3 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
mapfile -t hosts < <(sed 's/#.*//; s/[[:space:]]//g; /^$/d' "$1")
address=$2
shift 2

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

# Rank 0 writes the permission to join. It goes through standard input, because all users of a machine can read the arguments of a command.
start_workers() {
  until [ -s "$directory/join" ]; do sleep 0.1; done
  local rank=0 host
  for host in "${hosts[@]}"; do
    rank=$((rank + 1))
    ssh -o BatchMode=yes "$host" weft worker --quiet --join-file - --rank "$rank" <"$directory/join" &
  done
  wait
}
start_workers &
workers=$!

status=0
weft train "$@" --ranks $((${#hosts[@]} + 1)) --external "${#hosts[@]}" --listen "tcp://$address:0" \
  --join-file "$directory/join" || status=$?
kill "$workers" 2>/dev/null || true
exit "$status"
