#!/usr/bin/env bash
# Makes sure that everything a build needs is here, and prints the folder of the torch package on stdout.
#   scripts/setup.sh          what building and testing need
#   scripts/setup.sh lint     the same, and clang-format and clang-tidy
#   scripts/setup.sh core     what building and testing without the engine need (no torch; prints nothing)
#   scripts/setup.sh cluster  what the test cluster of scripts/cluster.sh needs: Slurm, and nothing to build (prints nothing)
#   scripts/setup.sh cuda     what building for NVIDIA GPUs needs: torch with its nvidia packages, in .venv-cuda (6 GB)
# Debian packages are installed by apt-get where something is missing and we are root; torch goes into .venv of the
# project by pip, unless TORCH_PYTHON names a python that has it. All messages go to stderr. When nothing is missing it
# takes a fraction of a second and asks no network.
#   TORCH_PYTHON=…            a python executable with torch 2.13 or newer; .venv is then neither made nor used
#   TESSERA_SKIP_PACKAGES=1   do not look at Debian packages: the tools come from elsewhere
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-build}
torch_version=2.13.0 venv=.venv torch_mib=3000 headers=()
if [ "$mode" = cuda ]; then
  # The headers that those of its nvidia packages include and do not bring along.
  torch_version=2.14.1 venv=.venv-cuda torch_mib=9000 headers=('nvidia-cuda-cccl==13.0.*')
fi
readonly mode torch_version venv torch_mib headers
readonly stamp=$venv/.tessera-torch  # written once torch has been imported there; holds its version
packages=(build-essential cmake ninja-build ccache mold pkg-config python3 python3-venv nlohmann-json3-dev libyaml-dev
  zlib1g-dev libzstd-dev libxxhash-dev libgtest-dev unicode-data)

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "error: $1"
  shift
  for line in "$@"; do say "  $line"; done
  exit 1
}
system_name() { (. /etc/os-release 2>/dev/null && printf '%s' "${PRETTY_NAME:-an unknown system}") || printf 'an unknown system'; }

# --- Debian packages ------------------------------------------------------------------------------------------------

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Abbrev}\n' "${packages[@]}" 2>/dev/null |
    awk '$2 ~ /^.i/ {print $1}') || true
  local name
  for name in "${packages[@]}"; do
    grep -qx -- "$name" <<<"$installed" || printf '%s\n' "$name"
  done
}

install_packages() {
  local missing=("$@") log
  if [ "$(id -u)" != 0 ]; then
    fail "these Debian packages are missing: ${missing[*]}" "Only root can install them. Run, then try again:" \
      "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
  fi
  command -v apt-get >/dev/null || fail "these packages are missing, and there is no apt-get: ${missing[*]}" \
    "Tessera is built on Debian 12; this is $(system_name). Install their counterparts and set TESSERA_SKIP_PACKAGES=1."
  log=$(mktemp)
  say "setup: installing ${missing[*]}"
  if ! { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 update -q &&
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -q -y --no-install-recommends \
      "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    fail "apt-get could not install ${missing[*]} (its last lines are above)" \
      "Look for a network or disk that is missing there. Tessera is built on Debian 12; this is $(system_name)."
  fi
  rm -f "$log"
}

# at_least FOUND WANTED: versions compared number by number.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

check_tools() {
  local tool
  for tool in c++ cmake ninja pkg-config; do
    command -v "$tool" >/dev/null || fail "the program '$tool' is not on PATH" \
      "Install it, or unset TESSERA_SKIP_PACKAGES and let 'make build' do so."
  done
  local cmake_version compiler_version
  cmake_version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
  at_least "$cmake_version" 3.25 || fail "cmake is $cmake_version; 3.25 or newer is needed" \
    "Debian 12 has 3.25; this is $(system_name). Put a newer cmake first on PATH."
  compiler_version=$(c++ -dumpfullversion 2>/dev/null || c++ -dumpversion)
  if ! c++ --version | grep -qi clang && ! at_least "$compiler_version" 12; then
    fail "the C++ compiler is gcc $compiler_version; 12 or newer is needed for C++20" \
      "Debian 12 has 12.2; this is $(system_name). Put a newer c++ first on PATH."
  fi
}

# --- torch ----------------------------------------------------------------------------------------------------------

# torch_of PYTHON: one line "FOLDER VERSION", without importing torch (that takes seconds). Empty where there is none.
torch_of() {
  "$1" - <<'PY'
import importlib.util, pathlib, re
spec = importlib.util.find_spec("torch")
if spec is not None and spec.origin is not None:
    folder = pathlib.Path(spec.origin).parent
    found = re.search(r"__version__\s*=\s*'([^']+)'", (folder / "version.py").read_text())
    print(folder, found.group(1) if found else "0")
PY
}

check_torch() {  # PYTHON FOLDER VERSION REMEDY
  at_least "${3%%[+a-z]*}" 2.13 || fail "torch $3 of $1 is too old: 2.13 or newer is needed" "$4"
  [ -f "$2/include/ATen/ATen.h" ] && [ -f "$2/lib/libtorch_cpu.so" ] || fail \
    "torch $3 of $1 has no C++ headers or libraries ($2/include, $2/lib)" "Install the official wheel there, or: $4"
}

own_torch() {
  local found folder version
  found=$(torch_of "$TORCH_PYTHON" 2>/dev/null) || fail "TORCH_PYTHON='$TORCH_PYTHON' is not a python that runs" \
    "Give the path of a python 3 executable, or unset TORCH_PYTHON: torch then goes into $venv."
  [ -n "$found" ] || fail "TORCH_PYTHON='$TORCH_PYTHON' has no torch" \
    "Run: $TORCH_PYTHON -m pip install 'torch>=2.13'   or unset TORCH_PYTHON: torch then goes into $venv."
  folder=${found% *} version=${found##* }
  check_torch "TORCH_PYTHON='$TORCH_PYTHON'" "$folder" "$version" \
    "Run: $TORCH_PYTHON -m pip install --upgrade 'torch>=2.13'   or unset TORCH_PYTHON: torch then goes into $venv."
  printf '%s\n' "$folder"
}

make_venv() {
  # Debian's own python first: that is the one which python3-venv belongs to.
  local python=/usr/bin/python3
  [ -x "$python" ] || python=$(command -v python3) || fail "there is no python3" "Install python3 and python3-venv."
  "$python" -c 'import venv, ensurepip' 2>/dev/null || fail "$python cannot make virtual environments" \
    "Run: sudo apt-get install -y python3-venv"
  say "setup: making $venv with $python"
  "$python" -m venv --clear "$venv" >&2 || fail "$python -m venv $venv failed" \
    "Look whether the disk is full and this folder can be written: $PWD"
}

install_torch() {
  local log=$venv/install.log free_kib
  free_kib=$(df -Pk "$venv" | awk 'NR == 2 {print $4}')
  [ "$free_kib" -ge $((torch_mib * 1024)) ] || fail "only $((free_kib / 1024)) MiB are free in $PWD; torch needs about $torch_mib MiB" \
    "Make room, or set TORCH_PYTHON to a python that has torch 2.13 or newer."
  say "setup: installing torch $torch_version and numpy into $venv ($((torch_mib / 3)) MB to fetch; log: $log)"
  if ! "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off "$@" \
    "torch==$torch_version" numpy "${headers[@]}" >"$log" 2>&1 </dev/null; then
    tail -n 8 "$log" >&2
    grep -q 'No space left' "$log" && fail "pip could not install torch: the disk is full" "Make room, and try again."
    fail "pip could not install torch $torch_version (its last lines are above, all of them in $log)" \
      "Look whether this machine reaches its package index (pip config list), and try again; or set TORCH_PYTHON to a" \
      "python that has torch 2.13 or newer."
  fi
}

imports_torch() { "$venv/bin/python" -c 'import torch, numpy' >/dev/null 2>&1; }

project_torch() {
  local found='' folder version
  "$venv/bin/python" -c '' 2>/dev/null || make_venv
  found=$(torch_of "$venv/bin/python") || true
  if [ -z "$found" ] || [ "$(cat "$stamp" 2>/dev/null)" != "${found##* }" ]; then
    # Nothing there, or not known to be whole (an install that was cut short): only an import tells.
    if [ -z "$found" ]; then
      install_torch
    elif ! imports_torch; then
      install_torch --force-reinstall
    fi
    imports_torch || { "$venv/bin/python" -c 'import torch, numpy' >&2 || true
      fail "torch was installed into $venv but cannot be imported (see above)" "Remove $venv, and try again."; }
    found=$(torch_of "$venv/bin/python")
    printf '%s\n' "${found##* }" >"$stamp"
  fi
  folder=${found% *} version=${found##* }
  check_torch "$venv" "$folder" "$version" "Remove $venv, and try again."
  printf '%s\n' "$folder"
}

# --- main -----------------------------------------------------------------------------------------------------------

[ "$mode" = core ] || packages+=(libgloo-dev libopenmpi-dev openmpi-bin)
case $mode in
  build | core | cuda) ;;
  lint) packages+=(clang-format clang-tidy) ;;
  cluster) packages=(slurm-wlm munge iproute2 openmpi-bin) ;;
  *) fail "unknown mode '$mode'" "usage: scripts/setup.sh [build|lint|core|cluster|cuda]" ;;
esac
exec 9<"scripts/setup.sh"
flock 9  # two makes in one checkout take turns

if [ -z "${TESSERA_SKIP_PACKAGES:-}" ]; then
  command -v dpkg-query >/dev/null || fail "this is $(system_name), not a Debian system" \
    "Install the counterparts of: ${packages[*]}" "and set TESSERA_SKIP_PACKAGES=1."
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
fi
[ "$mode" != cluster ] || exit 0
check_tools
if [ "$mode" != core ]; then
  if [ -n "${TORCH_PYTHON:-}" ]; then own_torch; else project_torch; fi
fi
