#!/usr/bin/env bash
# A Slurm cluster of two nodes on this one machine, for tests: n1 and n2 are hosts of their own (network, host name,
# file systems can be mounted on one only), c0 holds slurmctld, and a switch joins them.
#   scripts/cluster.sh start                      starts it (idempotent); needs root, and what setup.sh cluster installs
#   scripts/cluster.sh run [--on c0|n1|n2] COMMAND…   runs a command on a host, by default c0: srun, sbatch, ip …
#   scripts/cluster.sh link n1|n2 up|down         pulls a node's cable, or puts it back
#   scripts/cluster.sh status                     the processes, the addresses, and what Slurm says
#   scripts/cluster.sh stop                       ends what start began; leaves nothing behind (idempotent)
#   scripts/cluster.sh with COMMAND…              start, COMMAND on this machine, stop in any case
# `start` exits with 77, and says why, where this machine does not allow it: not root, no namespaces, no packages.
# State lies in TESSERA_CLUSTER, by default /tmp/tessera-cluster. A Slurm or munge of this machine is not touched: keys,
# sockets and configuration are the cluster's own, and the addresses (10.77.0.1-3) exist in its namespaces only.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=${TESSERA_CLUSTER:-/tmp/tessera-cluster}
readonly here state hosts=(c0 n1 n2)
export SLURM_CONF=$state/slurm.conf

say() { printf '%s\n' "$*" >&2; }
fail() {  # MESSAGE [CODE]
  say "error: $1"
  exit "${2:-1}"
}
cannot() { fail "the test cluster cannot run here: $1" 77; }

address() { case $1 in c0) echo 10.77.0.1 ;; n1) echo 10.77.0.2 ;; n2) echo 10.77.0.3 ;; *) fail "unknown host '$1' (c0, n1 or n2)" 2 ;; esac; }

# A host's network is pinned at $state/HOST.net, so that its number cannot become another's while the state exists.
network() { [ "$(stat -f -c %T "$state/$1.net" 2>/dev/null)" = nsfs ] && stat -L -c 'net:[%i]' "$state/$1.net"; }

# The process that keeps a host's name and mounts; nothing where it is gone.
keeper() {
  local pid
  pid=$(cat "$state/$1.keeper" 2>/dev/null) && [ "$(readlink "/proc/$pid/ns/net" 2>/dev/null)" = "$(network "$1")" ] &&
    echo "$pid"
}
is_up() { keeper "$1" >/dev/null; }

on() {  # HOST COMMAND…
  local pid
  pid=$(keeper "$1") || fail "the cluster is not running. Start it with: scripts/cluster.sh start" 3
  shift
  exec nsenter --target "$pid" --net --uts --mount --wdns="$PWD" -- "$@"
}

# --- start ----------------------------------------------------------------------------------------------------------

check_machine() {
  [ "$(id -u)" = 0 ] || cannot "it needs root, for network namespaces and for slurmd"
  local program missing=()
  for program in slurmctld slurmd srun sinfo munged ip nsenter unshare; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  [ ${#missing[@]} = 0 ] || cannot "these programs are missing: ${missing[*]}. Install them with: scripts/setup.sh cluster"
  local reason
  reason=$(unshare --net --uts --mount true 2>&1) || cannot "namespaces cannot be made here ($reason)"
  reason=$(unshare --net sh -c 'ip link add name b0 type bridge && ip link add name v0 type veth peer name v1' 2>&1) ||
    cannot "network devices of the kinds bridge and veth cannot be made here ($reason)"
}

# keep NAME: makes a host's namespaces and remembers who keeps them. setsid: not ended by the terminal's signals.
keep() {
  local pid n
  touch "$state/$1.net"
  setsid unshare --net="$state/$1.net" --uts --mount --propagation slave sh -c '
    hostname "$1"
    [ ! -f "$2" ] || mount --bind "$2" /etc/hosts
    ip link set lo up
    touch "$3"
    exec sleep infinity' keeper "$1" "$state/$1.hosts" "$state/$1.ready" </dev/null >>"$state/keepers.log" 2>&1 &
  pid=$!
  for n in $(seq 100); do
    [ -e "$state/$1.ready" ] && break
    kill -0 $pid 2>/dev/null || break
    sleep 0.05
  done
  [ -e "$state/$1.ready" ] || fail "the namespaces of $1 could not be made: $(tail -n 3 "$state/keepers.log")"
  echo "$pid" >"$state/$1.keeper"
}

connect() {  # HOST: a cable between its eth0 and the switch's bridge
  local pid switch
  pid=$(keeper "$1") switch=$(keeper switch)
  nsenter --target "$switch" --net ip link add "to-$1" type veth peer name eth0 netns "$pid"
  nsenter --target "$switch" --net ip link set "to-$1" master bridge0 up
  nsenter --target "$pid" --net ip address add "$(address "$1")/24" dev eth0
  nsenter --target "$pid" --net ip link set eth0 up
}

write_configuration() {
  local host plugin=cgroup/v2
  [ -d /sys/fs/cgroup/cpu ] || [ -d /sys/fs/cgroup/memory ] && plugin=cgroup/v1
  # As Debian sets up a host: its own name is a loopback address there, and no other host's is.
  local own
  for own in "${hosts[@]}"; do
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$own" >"$state/$own.hosts"
    for host in "${hosts[@]}"; do
      [ "$host" = "$own" ] || echo "$(address "$host") $host" >>"$state/$own.hosts"
    done
  done
  printf 'CgroupPlugin=%s\nCgroupAutomount=no\n' "$plugin" >"$state/cgroup.conf"
  # cred_expire also is how long a requeued job waits before it starts again; Slurm's default is two minutes.
  cat >"$state/slurm.conf" <<END
ClusterName=tessera
SlurmctldHost=c0($(address c0))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$state/munge/socket,cred_expire=15
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=20
SchedulerParameters=batch_sched_delay=1,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
StateSaveLocation=$state/slurmctld
SlurmdSpoolDir=$state/slurmd.%n
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd.%n.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdLogFile=$state/slurmd.%n.log
NodeName=n1 NodeAddr=$(address n1) NodeHostname=n1 CPUs=4 RealMemory=2000
NodeName=n2 NodeAddr=$(address n2) NodeHostname=n2 CPUs=4 RealMemory=2000
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE OverSubscribe=FORCE
END
}

start_munge() {
  mkdir -m 755 "$state/munge"
  (umask 077 && head -c 1024 /dev/urandom >"$state/munge/key")
  munged --key-file="$state/munge/key" --socket="$state/munge/socket" --pid-file="$state/munge/pid" \
    --log-file="$state/munge/log" --seed-file="$state/munge/seed" --num-threads=2 ||
    fail "munged did not start (its log: $state/munge/log)"
}

# daemon HOST NAME COMMAND…: on that host, apart from this terminal.
daemon() {
  local host=$1 name=$2
  shift 2
  (on "$host" setsid "$@" </dev/null >"$state/$name.out" 2>&1) &
}

wait_for_nodes() {
  local n
  for n in $(seq 60); do
    [ "$( (on c0 sinfo --noheader --format '%T %D') 2>/dev/null)" = 'idle 2' ] && return
    sleep 0.5
  done
  say "$(tail -n 5 "$state"/slurm*.log "$state"/slurm*.out 2>/dev/null)"
  fail "the nodes are not idle after 30 s (the logs' last lines are above)"
}

start() {
  check_machine
  if is_up c0 && [ "$( (on c0 timeout 10 sinfo --noheader --format '%D') 2>/dev/null)" = 2 ]; then
    say "the cluster is running already ($state)"
    return
  fi
  stop
  mkdir -m 755 "$state" || fail "cannot make the folder $state"
  echo 'made by scripts/cluster.sh' >"$state/owner"
  trap 'stop' EXIT
  write_configuration
  keep switch
  nsenter --target "$(keeper switch)" --net ip link add name bridge0 type bridge
  nsenter --target "$(keeper switch)" --net ip link set bridge0 up
  local host
  for host in "${hosts[@]}"; do
    keep "$host"
    connect "$host"
  done
  start_munge
  mkdir "$state/slurmctld"
  daemon c0 slurmctld slurmctld -D
  daemon n1 slurmd.n1 slurmd -D -N n1
  daemon n2 slurmd.n2 slurmd -D -N n2
  wait_for_nodes
  trap - EXIT
  say "two nodes are idle. For example: scripts/cluster.sh run srun -N2 hostname"
}

# --- stop -----------------------------------------------------------------------------------------------------------

# Every process that lives in a network of the cluster: daemons, and whatever jobs left.
inhabitants() {
  local host numbers=' '
  for host in switch "${hosts[@]}"; do
    [ "$(stat -f -c %T "$state/$host.net" 2>/dev/null)" = nsfs ] && numbers+="$(stat -L -c %i "$state/$host.net") "
  done
  { stat -L -c '%i %n' /proc/[0-9]*/ns/net 2>/dev/null || true; } |  # those that end meanwhile are an error of stat's
    awk -v numbers="$numbers" 'index(numbers, " " $1 " ") {split($2, part, "/"); print part[3]}'
}

munged_pid() {
  local pid
  pid=$(cat "$state/munge/pid" 2>/dev/null) || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$state/munge/socket" && echo "$pid"
}

stop() {
  [ -e "$state" ] || return 0
  [ -f "$state/owner" ] || fail "$state was not made by this script. Remove it, or set TESSERA_CLUSTER to another folder."
  local signal pids n
  # Asked first, Slurm ends its jobs in a moment; by their processes alone it takes long.
  is_up c0 && (on c0 timeout 5 scancel --quiet --full --signal=KILL --user=root) 2>/dev/null || true
  for signal in TERM KILL; do
    for n in $(seq 12); do
      pids=$(inhabitants)
      [ -n "$pids" ] || break 2
      # shellcheck disable=SC2086
      [ "$n" != 1 ] || kill -s $signal $pids 2>/dev/null || true
      sleep 0.25
    done
  done
  pids=$(inhabitants)
  [ -z "$pids" ] || fail "these processes of the cluster do not end: $pids"
  pids=$(munged_pid) && kill "$pids" 2>/dev/null || true
  for n in "$state"/*.net; do
    [ ! -e "$n" ] || umount "$n" 2>/dev/null || umount --lazy "$n" 2>/dev/null || true
  done
  rm -rf "$state"
}

status() {
  is_up c0 || { say "the cluster is not running ($state)"; return 3; }
  local host
  for host in "${hosts[@]}"; do
    printf '%s  %s  %s\n' "$host" "$(address "$host")" "$( (on "$host" ip -brief link show eth0) 2>&1)"
  done
  (on c0 sinfo --Node --long)
  (on c0 squeue)
}

command=${1:-}
[ $# = 0 ] || shift
case $command in
  start) start ;;
  stop) stop ;;
  status) status ;;
  run)
    host=c0
    if [ "${1:-}" = --on ]; then
      host=${2:?--on needs a host: c0, n1 or n2}
      address "$host" >/dev/null
      shift 2
    fi
    [ $# -gt 0 ] || fail "run needs a command. For example: scripts/cluster.sh run srun -N2 hostname" 2
    on "$host" "$@"
    ;;
  link)
    case "${1:-} ${2:-}" in 'n1 up' | 'n1 down' | 'n2 up' | 'n2 down') ;; *) fail "usage: scripts/cluster.sh link n1|n2 up|down" 2 ;; esac
    on "$1" ip link set eth0 "$2"
    ;;
  with)
    "$here/cluster.sh" start
    trap 'stop' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    "$@"
    ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
