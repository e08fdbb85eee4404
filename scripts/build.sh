#!/usr/bin/env bash
# Configures where needed, and builds: scripts/build.sh PRESET [ninja target…]
# PRESET is one of CMakePresets.json. With nothing to do it takes a second.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: scripts/build.sh PRESET [target…]}
shift
case $preset in
  release) folder=build mode=build ;;
  *-core) folder=build-$preset mode=core ;;
  cuda) folder=build-cuda mode=cuda ;;
  *) folder=build-$preset mode=build ;;
esac
torch=$(scripts/setup.sh "$mode")

# A fresh clone finds what another one compiled: paths inside the clone do not count.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
cached() { sed -n "s/^$1:[A-Z]*=//p" "$folder/CMakeCache.txt" 2>/dev/null; }
if [ ! -f "$folder/build.ninja" ] || [ "$(cached TESSERA_TORCH_DIR)" != "$torch" ] ||
  [ CMakePresets.json -nt "$folder/build.ninja" ]; then
  cmake --preset "$preset" -DTESSERA_TORCH_DIR="$torch" >"$folder.log" 2>&1 || {
    cat "$folder.log" >&2
    rm -f "$folder.log"
    echo "error: cmake could not configure '$preset' (see above)" >&2
    exit 1
  }
  rm -f "$folder.log"
fi
NINJA_STATUS=${NINJA_STATUS:-'[%f/%t, %es] '} exec ninja -C "$folder" -j "$(scripts/jobs.sh)" "$@"
