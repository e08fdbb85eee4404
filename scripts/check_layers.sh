#!/usr/bin/env bash
# Proves from the text of src/ what docs/architecture.md promises: includes follow the layers, torch stays in its folders,
# the GPU vendor's word stays in its transport, and the other rules below. Prints every breach, exits with 1 if any.
set -euo pipefail
cd "$(dirname "$0")/.."
breaches=$(mktemp)
trap 'rm -f "$breaches"' EXIT
breach() { printf '%s\n' "$1" >>"$breaches"; }

sources() { find src -name '*.cpp' -o -name '*.h' | sort; }

# 1. Includes, and 2. torch. Layers as in the table of docs/architecture.md.
# shellcheck disable=SC2046
awk '
  BEGIN {
    split("base 0 config 1 tokenizer 2 formats 2 store 2 ops 2 unit 3 data 4 model 4 optim 4 parallel 4 " \
          "checkpoint 5 tracking 5 inference 5 hub 5 train 6 server 6 planner 6 launcher 6 cli 7", words, " ")
    for (i = 1; i in words; i += 2) layer[words[i]] = words[i + 1]
    split("ops unit model optim parallel inference train server planner", names, " ")
    for (i in names) torch[names[i]] = 1
  }
  FNR == 1 {
    split(FILENAME, parts, "/"); folder = parts[2]; test = FILENAME ~ /_test\.cpp$/
    if (!(folder in layer)) print FILENAME ": the folder src/" folder " is in no layer"
  }
  /^[ \t]*#[ \t]*include[ \t]*</ {
    if ($0 ~ /<(ATen|c10|torch|caffe2)\// && (!(folder in torch) || FILENAME == "src/train/engine_api.h"))
      print FILENAME ":" FNR ": includes torch, and src/" folder " is built without it"
  }
  /^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, quoted, "\""); path = quoted[2]
    if (path !~ /\//) { if (path !~ /\.inc$/) print FILENAME ":" FNR ": includes \"" path "\" without its folder"; next }
    split(path, steps, "/"); target = steps[1]
    if (!(target in layer) || target == folder) next
    if (folder == "cli" && target in torch) {
      if (path != "train/engine_api.h")
        print FILENAME ":" FNR ": src/cli is built without torch; of the engine it may include train/engine_api.h only, not " path
    } else if (!(folder in torch) && target in torch)
      print FILENAME ":" FNR ": src/" folder " is built without torch and includes " path
    if (layer[target] > layer[folder])
      print FILENAME ":" FNR ": includes " path " of a higher layer"
    else if (layer[target] == layer[folder] && !test)
      print FILENAME ":" FNR ": includes " path " of its own layer: folders of one layer do not know each other"
  }
' $(sources) >>"$breaches"

# 3. CPU and GPU are one path: the word stays in the NCCL transport. Text for people (comments; strings of the folders
# without torch, where it names a device) does not count.
for file in $(sources); do
  case $file in src/parallel/*nccl* | src/ops/device.cpp) continue ;; esac  # device.cpp turns a name into a device
  strip='s,//.*,,'
  case $file in src/config/* | src/cli/* | src/base/*) strip='s/"[^"]*"//g;s,//.*,,' ;; esac
  sed "$strip" "$file" | grep -niE 'cuda' | while IFS=: read -r line text; do
    echo "$file:$line: the word cuda belongs in src/parallel/nccl*: $text"
  done >>"$breaches" || true
done

# 4. Only cli/ ends the process (base/signals.cpp does so at a second Ctrl-C, store/forked_store.cpp its own child), and
# there is one main.
# shellcheck disable=SC2046
grep -nE '(^|[^A-Za-z_.>:])(std::)?(_?exit|quick_exit|abort|terminate)\(' $(sources | grep -vE '^src/cli/|_test\.cpp$|^src/base/signals\.cpp$|^src/store/forked_store\.cpp$') |
  grep -vE '^[^:]*:[0-9]*:[ \t]*//' | sed 's/$/   <- only cli\/ may end the process; throw tessera::Error/' >>"$breaches" || true
# shellcheck disable=SC2046
grep -nE '^int main\(' $(sources | grep -v '^src/cli/main\.cpp$') | sed 's/$/   <- the only main is in cli\/main.cpp/' >>"$breaches" || true

# 5. Headers that cost seconds stay out of headers, but for those that only tests include.
# shellcheck disable=SC2046
grep -nE '#include <(nlohmann/json\.hpp|regex|iostream|torch/torch\.h|torch/all\.h)>' $(sources | grep '\.h$') |
  while IFS=: read -r file rest; do
    if grep -qF "\"${file#src/}\"" $(sources | grep -v '_test\.cpp$'); then
      echo "$file:$rest   <- too heavy for a header"
    fi
  done >>"$breaches" || true

# 6. Nothing is left for later, no file grows without end, and nothing names one machine or one server of packages.
mapfile -t texts < <(git ls-files --cached --others --exclude-standard -- \
  '*.cpp' '*.h' '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' '*.md' '*.yaml' Makefile .ci/run |
  while read -r file; do [ -f "$file" ] && [ "$file" != scripts/check_layers.sh ] && echo "$file"; done)
grep -nE '\b(TODO|FIXME|XXX|HACK)\b|^[ \t]*#[ \t]*if 0\b' "${texts[@]}" |
  sed 's/$/   <- finish it, or leave it out/' >>"$breaches" || true
# The names are put together here, so that this file holds none of them itself.
workplace='/wo''rk/' index='py''pi\.(org|python)' archive='deb\.deb''ian\.org'
grep -nE "(^|[^A-Za-z0-9_.])$workplace|$index|$archive|index-url" "${texts[@]}" |
  sed 's/$/   <- holds on one machine only/' >>"$breaches" || true
for file in "${texts[@]}"; do
  lines=$(wc -l <"$file")
  case $file in *.md | tests/reference/*) continue ;; esac
  [ "$lines" -le 600 ] || breach "$file: $lines lines; 600 at most, so that a file holds one topic"
done

if [ -s "$breaches" ]; then
  cat "$breaches"
  echo "$(wc -l <"$breaches") breaches (docs/architecture.md and CONTRIBUTING.md say why)"
  exit 1
fi
echo "layers hold: $(sources | wc -l) files of src/"
