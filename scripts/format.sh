#!/usr/bin/env bash
# Lays out the C++ files that git knows, or would: scripts/format.sh [--check]
# --check changes nothing, and names the files (with the lines) that are not laid out.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-format >/dev/null || scripts/setup.sh lint >/dev/null
mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.cpp' '*.h' | while read -r f; do [ -f "$f" ] && echo "$f"; done)
[ ${#files[@]} -gt 0 ] || exit 0
if [ "${1:-}" != --check ]; then
  printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 20 clang-format -i
  exit
fi
wrong=0
for file in "${files[@]}"; do
  if ! difference=$(clang-format "$file" | diff -u --label "$file" --label "$file laid out" "$file" -); then
    wrong=$((wrong + 1))
    [ $wrong -le 5 ] && head -n 20 <<<"$difference"
    [ $wrong -gt 5 ] && echo "$file"
  fi
done
if [ $wrong -gt 0 ]; then
  echo "$wrong of ${#files[@]} files are not laid out. Run: make format"
  exit 1
fi
echo "${#files[@]} files are laid out"
