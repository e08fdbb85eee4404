"""Two nodes on this machine: two network namespaces, each with a host name of its own, and a cable between them whose
bandwidth can be set. Owns: making and ending them, what runs in them, the cable's counters. Not: what is measured (nodes.py).

Nothing of this outlives the process that made it: a namespace lives as long as its processes, and the kernel ends those
when this one ends, however it ends. Nothing is seen outside either, so several of these can exist at once. Linux, root."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

CLONE_NEWNET = 0x40000000
ADDRESSES = ("10.77.8.1", "10.77.8.2")
MTU = 9000  # large packets: fewer of them for the processor, and headers take under 1 % of the cable
FILL = 1 << 20  # more than a bucket holds
PROGRAMS = ("ip", "tc", "nsenter", "setpriv", "unshare")


class CannotRun(Exception):
    """Why this machine cannot play two nodes, and what to do."""


def words_of(*words):
    return [str(word) for word in words]


class TwoNodes:
    """A context manager; nodes are 0 and 1."""

    def __init__(self):
        self.keepers, self.started = [], []

    def __enter__(self):
        if os.geteuid() != 0:
            raise CannotRun("it needs root, for network namespaces. Run it as root, or in a container where you are")
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            raise CannotRun(f"these programs are missing: {', '.join(missing)}. Debian's packages are iproute2 and util-linux")
        try:
            self.make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def make(self):
        for node in (0, 1):
            self.keepers.append(subprocess.Popen(
                words_of("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "sh", "-c",
                         'hostname "$1" && ip link set lo up && echo ready && exec sleep infinity', "keeper", f"node{node}"),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True))
            if self.keepers[node].stdout.readline() != "ready\n":
                raise CannotRun(f"namespaces cannot be made here ({self.keepers[node].stderr.read().strip()})")
        self.run(0, "ip", "link", "add", "eth0", "mtu", MTU, "type", "veth", "peer", "name", "eth0", "mtu", MTU, "netns",
                 self.keepers[1].pid)
        for node in (0, 1):
            self.run(node, "ip", "address", "add", f"{ADDRESSES[node]}/24", "dev", "eth0")
            self.run(node, "ip", "link", "set", "eth0", "up")

    def inside(self, node, words):
        """The command, as it runs on a node; it ends with this process at the latest."""
        return words_of("setpriv", "--pdeathsig", "KILL", "nsenter", "--target", self.keepers[node].pid, "--net", "--uts",
                        "--", *words)

    def run(self, node, *words):
        done = subprocess.run(self.inside(node, words), capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise CannotRun(f"'{' '.join(words_of(*words))}' failed: {done.stderr.strip()}")

    def start(self, node, words, **options):
        """A process on a node, the leader of a group; options are subprocess.Popen's. Call from the main thread: the kernel
        ends it when the thread that started it ends."""
        child = subprocess.Popen(self.inside(node, words), stdin=subprocess.DEVNULL, start_new_session=True, **options)
        self.started.append(child)
        return child

    def shape(self, bits_per_second):
        """Sets the bandwidth of both directions; None: whatever the machine can do."""
        for node in (0, 1):
            if bits_per_second is None:
                # `replace` by the queue that a fresh device of this kind has: there may be nothing to delete.
                self.run(node, "tc", "qdisc", "replace", "dev", "eth0", "root", "pfifo")
            else:
                self.run(node, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{int(bits_per_second)}bit",
                         "burst", "128kb", "limit", "4mb")

    def sent_bytes(self):
        """What has left each node so far, headers included."""
        totals = []
        for keeper in self.keepers:
            with open(f"/proc/{keeper.pid}/net/dev", encoding="ascii") as lines:
                fields = next(line.split(":")[1].split() for line in lines if line.strip().startswith("eth0:"))
            totals.append(int(fields[8]))
        return totals

    def socket_on(self, node):
        """A TCP socket of a node's network, for this process."""
        result = []

        def make():  # in a thread of its own: a thread enters a network, not the process
            with open(f"/proc/{self.keepers[node].pid}/ns/net", encoding="ascii") as network:
                if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), CLONE_NEWNET) == 0:
                    result.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if not result:
            raise CannotRun("a thread cannot enter the network of a namespace")
        return result[0]

    def measured_rate(self, total_bytes):
        """Bytes a second that one TCP stream of so many bytes gets from node 0 to node 1, once the bucket of a shaped cable,
        which an idle one fills, is empty."""
        total_bytes += FILL
        with self.socket_on(1) as listener, self.socket_on(0) as sender:
            for end in (listener, sender):
                end.settimeout(120)
            listener.bind((ADDRESSES[1], 0))
            listener.listen(1)
            sender.connect(listener.getsockname())
            with listener.accept()[0] as receiver:
                receiver.settimeout(120)
                thread = threading.Thread(target=send_zeros, args=(sender, total_bytes), daemon=True)
                thread.start()
                receive(receiver, FILL)
                begin = time.perf_counter()
                receive(receiver, total_bytes - FILL)
                seconds = time.perf_counter() - begin
                thread.join()
        return (total_bytes - FILL) / seconds

    def inhabitants(self):
        """Processes that live in either network, but for the keepers."""
        networks = set()
        for keeper in self.keepers:
            try:
                networks.add(os.stat(f"/proc/{keeper.pid}/ns/net").st_ino)
            except OSError:
                pass  # it has ended
        networks.discard(os.stat("/proc/self/ns/net").st_ino)  # of a keeper that has not come so far
        pids = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and os.stat(f"/proc/{name}/ns/net").st_ino in networks:
                    pids.append(int(name))
            except OSError:
                pass
        return [pid for pid in pids if pid not in [keeper.pid for keeper in self.keepers]]

    def signal_all(self, number):
        for pid in self.inhabitants():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill_all(self):
        """For another thread: who waits for the processes sees them end."""
        self.signal_all(signal.SIGKILL)

    def end_processes(self):
        """Ends what was started and whatever that left behind: TERM, and KILL after 5 s."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.signal_all(number)
            end = time.monotonic() + 5
            while time.monotonic() < end:
                for child in self.started:
                    child.poll()  # so that it is not left as a zombie, which still counts
                if not self.inhabitants():
                    break
                time.sleep(0.05)
        for child in self.started:
            child.wait()
        self.started = []

    def close(self):
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            self.end_processes()
            for keeper in self.keepers:
                keeper.kill()
                keeper.wait()
                keeper.stdout.close()
                keeper.stderr.close()
            self.keepers = []
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def receive(receiver, total_bytes):
    buffer, left = bytearray(1 << 16), total_bytes
    while left > 0:
        count = receiver.recv_into(buffer, min(left, len(buffer)))
        if count == 0:
            raise CannotRun("the stream that measures the cable broke off")
        left -= count


def send_zeros(sender, total_bytes):
    zeros, left = bytes(1 << 20), total_bytes
    while left > 0:
        left -= sender.send(zeros[:left])
