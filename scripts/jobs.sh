#!/usr/bin/env bash
# Prints how many compilers may run at once: as many as there are processors, and no more than the memory holds (a file
# that includes torch takes about 1 GiB). Limits of a container count. TESSERA_JOBS=N overrides.
set -euo pipefail
if [ -n "${TESSERA_JOBS:-}" ]; then
  case $TESSERA_JOBS in *[!0-9]* | 0*) echo "error: TESSERA_JOBS='$TESSERA_JOBS' is not a number of jobs" >&2; exit 1 ;; esac
  echo "$TESSERA_JOBS"
  exit
fi
jobs=$(nproc)
kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
# The process's own control group and those above it, of version 2 (one line "0::/path") and version 1.
group() { sed -n "s/^[0-9]*:$1:\\(.*\\)/\\1/p" /proc/self/cgroup 2>/dev/null | head -n 1; }
upwards() {  # MOUNT GROUP: the folders, nearest first
  local path=${2%/}
  while [ -n "$path" ]; do echo "$1$path"; path=${path%/*}; done
  echo "$1"
}
memory_limits() {
  local folder
  for folder in $(upwards /sys/fs/cgroup "$(group '')"); do cat "$folder/memory.max" 2>/dev/null || true; done
  for folder in $(upwards /sys/fs/cgroup/memory "$(group memory)"); do
    cat "$folder/memory.limit_in_bytes" 2>/dev/null || true
  done
}
for limit in $(memory_limits); do
  case $limit in
    *[!0-9]*) ;;
    *) [ "${#limit}" -lt 19 ] && [ $((limit / 1024)) -lt "$kib" ] && kib=$((limit / 1024)) ;;
  esac
done
for folder in $(upwards /sys/fs/cgroup "$(group '')"); do
  read -r quota period 2>/dev/null <"$folder/cpu.max" || continue
  [ "$quota" = max ] && continue
  processors=$(((quota + period - 1) / period))
  [ "$processors" -lt "$jobs" ] && jobs=$processors
done
by_memory=$((kib / 1048576))
[ "$by_memory" -lt "$jobs" ] && jobs=$by_memory
[ "$jobs" -lt 1 ] && jobs=1
echo "$jobs"
