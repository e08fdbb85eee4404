#!/usr/bin/env bash
# clang-tidy (.clang-tidy), in parallel: scripts/lint.sh changed|core|all [seconds]
#   changed   files that differ from main's last commit, and uncommitted ones
#   core      all files that know no torch; then those with torch, last changed first, until `seconds` are over
#   all       everything, the tests too (half a minute for each file that includes torch)
# A file that passed is not looked at again until its text, what it includes, or .clang-tidy changes: passes are kept in
# ${XDG_CACHE_HOME:-~/.cache}/tessera/lint under a hash of the preprocessed text. The flags are those of build/, or of the
# folder that LINT_BUILD names.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:?usage: scripts/lint.sh changed|core|all [seconds]}
seconds=${2:-0}
started=$SECONDS
scripts/setup.sh lint >/dev/null
export LINT_BUILD=${LINT_BUILD:-build}
[ -f "$LINT_BUILD/compile_commands.json" ] || scripts/build.sh release base_test >/dev/null
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tessera/lint
mkdir -p "$cache"
settings=$(cat .clang-tidy scripts/lint.sh | sha256sum | cut -c 1-16) || exit 1

torch_folders='^src/(ops|unit|model|optim|parallel|inference|train|server|planner)/'
existing() { while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done; }
known() { git ls-files --cached --others --exclude-standard -- 'src/*.cpp' 'tests/*.cpp' | existing; }
newest_first() {  # by the commit that touched a file last; files that are not committed before all
  local seen
  seen=$(git log --format= --name-only -- 'src/*.cpp' | awk '!seen[$0]++')
  { git ls-files --others --modified --exclude-standard -- 'src/*.cpp'; echo "$seen"; } | awk 'NF && !seen[$0]++' | existing
}

# compile FILE…: the words of its compile command without compiler cache, output and dependency file. Test files are
# compiled in bundles: one of them serves for its neighbours.
flags_of() {
  python3 - "$1" <<'PY'
import json, os, shlex, sys
target = os.path.abspath(sys.argv[1])
commands = json.load(open(os.environ["LINT_BUILD"] + "/compile_commands.json"))
exact = [c for c in commands if c["file"] == target]
near = [c for c in commands if os.path.dirname(target).removeprefix(os.getcwd()) + "/" in c["file"] or
        os.path.dirname(target).removeprefix(os.getcwd()) + "/" in c["directory"] + c["command"]]
test = target.endswith("_test.cpp")
near = [c for c in near if ("_test" in c["command"]) == test] or near
if not test:  # a source that this preset does not build (one for GPUs, say) has no neighbour whose flags would fit
    near = []
if not (exact or near):
    sys.exit(1)
words = shlex.split((exact or near)[0]["command"])
kept, skip = [], False
for word in words[1:]:
    if skip:
        skip = False
    elif word in ("-o", "-c", "-MF", "-MT", "-MQ"):
        skip = word != "-c"
    elif word.startswith(("-I", "-D", "-isystem", "-std", "-f")) or (kept and kept[-1] == "-isystem"):
        kept.append(word)
# clang has its own omp.h, which is not installed; without -fopenmp, ATen's headers do not ask for it.
print("\n".join(w for w in kept if not w.startswith("-fsanitize") and w != "-fopenmp"))
PY
}

lint_file() {
  local file=$1 flags key output
  mapfile -t flags < <(flags_of "$file")
  if [ ${#flags[@]} = 0 ]; then
    echo "$file: not built in $LINT_BUILD, so it is not looked at"
    return 0
  fi
  key=$({ echo "$settings $file ${flags[*]//$PWD/.}"; cat "$file"; c++ -E -C -P "${flags[@]}" "$file" 2>/dev/null |
    sed "s,$PWD,.,g"; } | sha256sum | cut -c 1-40)
  if [ -f "$cache/$key" ]; then return 0; fi
  if output=$(clang-tidy --quiet "$file" -- "${flags[@]}" -Wno-everything 2>/dev/null); then
    touch "$cache/$key"
  else
    printf '%s\n' "$output"
    echo "$file: clang-tidy found the above"
    return 1
  fi
}
export -f lint_file flags_of
export cache settings

case $mode in
  changed)
    base=$(git rev-parse -q --verify HEAD~1 || git hash-object -t tree /dev/null)
    files=$({ git diff --name-only "$base" -- 'src/*.cpp' 'tests/*.cpp'; git ls-files --others --exclude-standard -- \
      'src/*.cpp' 'tests/*.cpp'; } | sort -u | existing)
    later=
    ;;
  core)
    files=$(known | grep '^src/' | grep -vE "_test\.cpp$|$torch_folders"; known | grep '^tests/support/')
    later=$(newest_first | grep -E "$torch_folders" | grep -v '_test\.cpp$' || true)
    ;;
  all)
    files=$(known)
    later=
    ;;
  *) echo "error: unknown mode '$mode' (changed, core or all)" >&2; exit 2 ;;
esac

jobs=$(scripts/jobs.sh)
run() { xargs -r -P "$jobs" -I{} bash -c 'lint_file "$1"' _ {} ; }
status=0
[ -z "$files" ] || printf '%s\n' "$files" | run || status=1
count=$(grep -c . <<<"$files" || true)
skipped=0
while [ -n "$later" ]; do
  if [ "$seconds" -gt 0 ] && [ $((SECONDS - started)) -ge "$seconds" ]; then
    skipped=$(grep -c . <<<"$later")
    break
  fi
  head -n "$jobs" <<<"$later" | run || status=1
  count=$((count + $(head -n "$jobs" <<<"$later" | grep -c .)))
  later=$(tail -n +$((jobs + 1)) <<<"$later")
done
if [ "$status" = 0 ]; then echo "$count files pass clang-tidy"; fi
if [ "$skipped" -gt 0 ]; then echo "$skipped older files with torch were left for 'make tidy': $seconds seconds are over"; fi
exit $status
