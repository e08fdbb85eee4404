#!/usr/bin/env bash
# Runs the tests of a built preset and sums up their cases: scripts/test.sh PRESET [ctest argument…]
# Prints the output of failing tests, the reason of every skipped case, and ends with "N passed, N failed, N skipped".
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: scripts/test.sh PRESET [ctest argument…]}
shift
folder=build-$preset
[ "$preset" = release ] && folder=build
results=$PWD/$folder/test_results
rm -rf "$results"
mkdir -p "$results"
status=0
GTEST_OUTPUT=xml:$results/ ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$(scripts/jobs.sh)" "$@" \
  </dev/null || status=$?
python3 scripts/test_summary.py "$results" "$status"
