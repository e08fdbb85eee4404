#!/usr/bin/env bash
# Runs the benchmarks in turn, each against its peer in the same run: scripts/bench.sh [tokenizer|char|gpt2|scaling|sharding|saving|collectives]…
# Wants an idle machine; takes about half an hour on two cores. tiktoken, the peer of the tokenizer, goes into .venv-bench.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${TORCH_PYTHON:-.venv/bin/python}

tokenizer() {
  if ! .venv-bench/bin/python -c 'import tiktoken' 2>/dev/null; then
    local base=/usr/bin/python3
    [ -x $base ] || base=python3
    "$base" -m venv --clear .venv-bench
    .venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-input tiktoken || {
      echo "error: pip could not install tiktoken (see above)" >&2
      return 1
    }
  fi
  .venv-bench/bin/python benchmarks/tokenizer_vs_tiktoken.py
}
char() { "$python" benchmarks/compare/run.py char --python "$python"; }
gpt2() { "$python" benchmarks/compare/run.py gpt2 --python "$python"; }
scaling() { "$python" benchmarks/compare/scaling.py --python "$python"; }
sharding() { "$python" benchmarks/compare/scaling.py --python "$python" --strategy full_shard; }
saving() { "$python" benchmarks/compare/saving.py; }
collectives() { scripts/build.sh release collectives && "$python" benchmarks/collectives.py build/collectives; }

status=0
[ $# -gt 0 ] || set -- tokenizer char gpt2 scaling sharding saving collectives
for name in "$@"; do
  case $name in
    tokenizer | char | gpt2 | scaling | sharding | saving | collectives) ;;
    *) echo "error: unknown benchmark '$name' (tokenizer, char, gpt2, scaling, sharding, saving or collectives)" >&2; exit 2 ;;
  esac
  echo "== $name"
  "$name" || status=1
done
exit $status
