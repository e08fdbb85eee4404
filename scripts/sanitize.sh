#!/usr/bin/env bash
# Unit tests under sanitizers: scripts/sanitize.sh core|all
#   core   the layers that know no torch (address and undefined behaviour; threads where threads are)
#   all    every unit test under address and undefined behaviour, those with threads under the thread sanitizer
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:?usage: scripts/sanitize.sh core|all}
suffix=
case $mode in
  core) suffix=-core ;;
  all) ;;
  *) echo "error: unknown mode '$mode' (core or all)" >&2; exit 2 ;;
esac

has_tests() { ls "$1"*_test.cpp 2>/dev/null | grep -qv '_slow_test\.cpp$'; }

# Test programs of folders whose code starts threads.
threaded=()
for folder in src/*/; do
  name=$(basename "$folder")
  [ $mode = core ] && [[ $name =~ ^(ops|unit|model|optim|parallel|inference|train)$ ]] && continue
  if grep -lqE 'std::(j?thread|async)|pthread_create' "$folder"*.cpp "$folder"*.h 2>/dev/null &&
    has_tests "$folder"; then
    threaded+=("${name}_test")
  fi
done

# torch comes without instrumentation: what it allocates for good is no leak of ours, and what it synchronises inside is
# not seen. Its loader aborts on RTLD_DEEPBIND under these sanitizers, so nothing here loads it that way.
export ASAN_OPTIONS=detect_leaks=$([ $mode = core ] && echo 1 || echo 0):detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=ignore_noninstrumented_modules=1:second_deadlock_stack=1

echo "== address and undefined behaviour ($mode)"
tests=()
for folder in src/*/; do
  name=$(basename "$folder")
  [ $mode = core ] && [[ $name =~ ^(ops|unit|model|optim|parallel|inference|train|cli)$ ]] && continue
  if has_tests "$folder"; then tests+=("${name}_test"); fi
done
only() { local IFS='|'; echo "^($*)$"; }
scripts/build.sh "asan$suffix" "${tests[@]}"
scripts/test.sh "asan$suffix" -R "$(only "${tests[@]}")"
if [ ${#threaded[@]} -gt 0 ]; then
  echo "== threads: ${threaded[*]}"
  scripts/build.sh "tsan$suffix" "${threaded[@]}"
  scripts/test.sh "tsan$suffix" -R "$(only "${threaded[@]}")"
fi
