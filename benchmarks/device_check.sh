#!/usr/bin/env bash
# Is this build right and fast on this machine's GPU? At most 5 minutes once it is built:
#   benchmarks/device_check.sh                 on the first NVIDIA GPU
#   benchmarks/device_check.sh --device cuda:1
#   benchmarks/device_check.sh --device cpu    the same steps on the CPU, with a model of one layer: to try this script
# Steps: gpt2_tiny evaluated, generated from and trained against reference values and the CPU; 3 + 3 steps against 6; the
# memory in use that step lines tell; NCCL with one rank; GPT-2 124M against eager and compiled PyTorch, in f32
# and bf16. Each is ended when its time is over, and the next one comes. Prints a table and "N passed, N failed,
# N skipped"; exit code 0, 1 if any failed, 2 for a wrong call, 3 where there is no GPU.
#   --tessera PROGRAM  with its engine beside it [build-cuda/tessera; made by scripts/build.sh cuda where it is not there]
#   --seconds N        for all steps together [300; on the CPU 600]
#   TORCH_PYTHON       a python whose torch sees the GPU, for the peers [.venv-cuda/bin/python, else python3]
#   TESSERA_DATA       the folder of the test data [../shared/data]
#   OUT                where logs and figures stay [a folder under /tmp]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

usage() { echo "error: $1" >&2; sed -n '3,5p' "$0" | sed 's/^# *//' >&2; exit 2; }
device=cuda tessera='' seconds=''
while [ $# -gt 0 ]; do
  case $1 in
    --device | --tessera | --seconds) [ $# -ge 2 ] || usage "$1 needs a value" ;;
    -h | --help) sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    *) usage "unknown argument '$1'" ;;
  esac
  case $1 in --device) device=$2 ;; --tessera) tessera=$2 ;; --seconds) seconds=$2 ;; esac
  shift 2
done
case $device in cpu | cuda | cuda:[0-9] | cuda:[0-9][0-9]) ;; *) usage "unknown device '$device': cpu, cuda or cuda:N" ;; esac
# A processor needs longer for the same steps, also with less to do.
limit_of_peers=120
[ "$device" = cpu ] && limit_of_peers=270
seconds=${seconds:-$([ "$device" = cpu ] && echo 600 || echo 300)}
case $seconds in *[!0-9]* | 0*) usage "--seconds '$seconds' is not a number of seconds" ;; esac

out=${OUT:-$(mktemp -d /tmp/tessera-device-check.XXXXXX)}
mkdir -p "$out" || exit 1
data=${TESSERA_DATA:-../shared/data}
lines=() passed=0 failed=0 skipped=0

# --- What is here ---------------------------------------------------------------------------------------------------

if [ "$device" != cpu ] && ! nvidia-smi -L >"$out/gpus.txt" 2>&1; then
  echo "There is no NVIDIA GPU here (nvidia-smi -L: $(head -n 1 "$out/gpus.txt")). --device cpu tries the steps on the CPU."
  exit 3
fi

sees_device() {  # PYTHON: has it torch, and does that see the device?
  "$1" -c "import sys, torch; sys.exit(sys.argv[1] != 'cpu' and not torch.cuda.is_available())" "$device" 2>>"$out/python.log"
}
python=''
candidates=(.venv-cuda/bin/python python3 .venv/bin/python)
[ "$device" = cpu ] && candidates=(.venv/bin/python .venv-cuda/bin/python python3)
for candidate in ${TORCH_PYTHON:+"$TORCH_PYTHON"} "${candidates[@]}"; do
  if sees_device "$candidate"; then python=$candidate; break; fi
done

row() {  # STEP VERDICT SECONDS TEXT
  printf '%-14s %-8s %5s s  %s\n' "$@"
  lines+=("$1|$2|$3|$4")
  case $2 in passed) passed=$((passed + 1)) ;; failed) failed=$((failed + 1)) ;; *) skipped=$((skipped + 1)) ;; esac
}

# The build is no step: it takes minutes, and happens where there is none only.
missing=''
if [ -z "$tessera" ]; then
  tessera=build-cuda/tessera
  if [ "$device" = cpu ] && [ ! -x $tessera ]; then tessera=build/tessera; fi
  if [ ! -x $tessera ] && [ "$device" != cpu ]; then
    echo "build-cuda/tessera is not there: building it (log: $out/build.log)"
    if ! timeout -k 10 "${BUILD_SECONDS:-480}" scripts/build.sh cuda tessera tessera_engine transports_test \
      >"$out/build.log" 2>&1 </dev/null; then
      missing="the build failed: $(grep -E '^error|CMake Error|error:' "$out/build.log" | head -n 1)"
      tail -n 15 "$out/build.log"
      cat <<'HELP'
What a build for GPUs needs: the Debian packages that scripts/setup.sh lists (their headers: nlohmann-json, yaml, zlib,
zstd, xxhash, gtest, gloo), and torch 2.13 or newer for NVIDIA GPUs with its nvidia packages beside it.
  - With a network: scripts/setup.sh cuda fetches them.
  - Without: build elsewhere with the same torch, bring build-cuda along, and give its path as --tessera; or install
    torch and the packages from files, name the python by TORCH_PYTHON, and set TESSERA_SKIP_PACKAGES=1.
HELP
    fi
  fi
fi
[ -n "$missing" ] || [ -x "$tessera" ] || missing="there is no program at $tessera"

# --- Steps ----------------------------------------------------------------------------------------------------------

SECONDS=0
step() {  # NAME LIMIT arguments of device_check.py
  local name=$1 limit=$2 left=$((seconds - SECONDS)) begin=$SECONDS code text
  shift 2
  if [ -n "$missing" ]; then row "$name" skipped 0 "$missing"; return; fi
  if [ $left -lt 10 ]; then row "$name" skipped 0 "no time is left of $seconds s"; return; fi
  [ $left -lt "$limit" ] && limit=$left
  # A test of a program that hangs must end as well: its own limit is shorter.
  timeout -k 10 "$limit" "${python:-python3}" benchmarks/device_check.py "$@" --device "$device" --tessera "$tessera" \
    --python "${python:-python3}" --data "$data" --work "$out" --seconds $((limit > 20 ? limit - 5 : limit)) \
    >"$out/$name.txt" 2>"$out/$name.log" </dev/null
  code=$?
  text=$(tail -n 1 "$out/$name.txt")
  case $code in
    0) row "$name" passed $((SECONDS - begin)) "$text" ;;
    77) row "$name" skipped $((SECONDS - begin)) "$text" ;;
    124 | 137) row "$name" failed $((SECONDS - begin)) "not done after $limit s" ;;
    *) row "$name" failed $((SECONDS - begin)) "${text:-ended with $code: $(tail -n 1 "$out/$name.log")}" ;;
  esac
}
peers() {  # DTYPE
  if [ -z "$missing" ] && [ -z "$python" ]; then
    row "gpt2-$1" skipped 0 "no python here has a torch that sees $device (set TORCH_PYTHON)"
  elif [ "$device$1" = cpubf16 ] && ! grep -qE '^flags.* (avx512_bf16|amx_bf16)' /proc/cpuinfo; then
    row "gpt2-$1" skipped 0 "this CPU has no instructions for bf16: it would take minutes"
  else
    step "gpt2-$1" $limit_of_peers compare --dtype "$1" --size "$([ "$device" = cpu ] && echo small || echo gpt2)"
  fi
}

echo "device $device${python:+, $python with torch $("$python" -c 'import torch; print(torch.__version__)')}, $tessera"
[ "$device" = cpu ] || cat "$out/gpus.txt"
[ -n "$missing" ] && row build failed 0 "$missing"
step evaluate 40 evaluate
step generate 50 generate
step train 50 train
step resume 60 resume
step memory 30 memory
step nccl 60 nccl
peers bf16
peers f32

summary="$passed passed, $failed failed, $skipped skipped"
{
  printf '| step | verdict | s | |\n|---|---|---|---|\n'
  for line in "${lines[@]}"; do echo "| ${line//|/ | } |"; done
  echo
  echo "$summary"
} >"$out/summary.md"
echo "Logs and figures: $out"
echo "$summary"
[ $failed = 0 ]
