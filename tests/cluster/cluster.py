"""The test cluster and the runs on it, for run.py. Owns: commands on its hosts, processes there, reading what a run left,
and comparing two runs. Not: the cases (cases.py, install.py)."""

import array
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "cluster.sh"
TESSERA = pathlib.Path(os.environ.get("TESSERA", ROOT / "build" / "tessera"))
STATE = pathlib.Path(os.environ.get("TESSERA_CLUSTER", "/tmp/tessera-cluster"))
ADDRESSES = {"n1": "10.77.0.2", "n2": "10.77.0.3"}
EQUAL = 1e-5  # relative; docs/distributed.md has the measure


class Failure(Exception):
    """What a case found wrong, with what helps to see why."""


class Skip(Exception):
    """Why a case cannot run here."""


def expect(condition, message):
    if not condition:
        raise Failure(message)


class Ended:
    """How a command ended: code (128 + n for signal n), out, err, seconds."""

    def __init__(self, words, code, out, err, seconds):
        self.words, self.code, self.out, self.err, self.seconds = words, code, out, err, seconds

    @property
    def last_error(self):
        """The last line of stderr that is a program's error, without the label of srun."""
        lines = [re.sub(r"^\s*\d+: ", "", line) for line in self.err.splitlines()]
        errors = [line for line in lines if line.startswith("error: ")]
        return errors[-1] if errors else ""

    def describe(self):
        tail = lambda text: "\n".join("      " + line for line in text.strip().splitlines()[-25:])
        return (f"{' '.join(map(str, self.words))}\n    code {self.code} after {self.seconds:.1f} s"
                f"\n    stdout:\n{tail(self.out)}\n    stderr:\n{tail(self.err)}")


class Background:
    """A command in the background, in a process group of its own. Its streams go to files, so it never blocks."""

    started = []  # all of them, so that run.py can end those that an aborted case left

    def __init__(self, folder, words, env=None, cwd=None):
        self.words = [str(word) for word in words]
        self.out_path = folder / f".command-{len(Background.started)}.out"
        self.err_path = folder / f".command-{len(Background.started)}.err"
        self.since = time.monotonic()
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd or folder,
                                            env=env, start_new_session=True)
        Background.started.append(self)

    def wait(self, seconds):
        try:
            code = self.process.wait(timeout=max(0.1, seconds))
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f"not finished after {seconds:.0f} s: {self.ended(-1).describe()}") from None
        return self.ended(128 - code if code < 0 else code)

    def ended(self, code):
        return Ended(self.words, code, self.out_path.read_text(errors="replace"),
                     self.err_path.read_text(errors="replace"), time.monotonic() - self.since)

    def running(self):
        return self.process.poll() is None

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def on(host, *words):
    return [SCRIPT, "run", "--on", host, *words]


def wait_until(what, condition, seconds, step=0.1):
    """The first true value of `condition`. Failure when the time is over."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(step)


# --- processes on the hosts -------------------------------------------------------------------------------------------


def host_processes(host):
    """Processes of the program on a host, by their network: number -> command line, threads of the store included."""
    network = os.stat(STATE / f"{host}.net").st_ino
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.stat(entry / "ns" / "net").st_ino != network:
                continue
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if pathlib.Path(words[0].decode(errors="replace")).name == "tessera":
                found[int(entry.name)] = b" ".join(words).decode(errors="replace")
        except (OSError, ValueError):
            continue  # it has ended
    return found


def ranks_on(host):
    """The processes that train there: of the program, and marked as ranks by Slurm or an agent."""
    ranks = {}
    for pid in host_processes(host):
        try:
            environment = dict(item.split(b"=", 1) for item in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                               if b"=" in item)
            parent = int(re.search(r"^PPid:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])
        except (OSError, TypeError):
            continue
        if parent in host_processes(host) and b"RANK" not in environment:
            continue  # rank 0's store
        rank = environment.get(b"RANK", environment.get(b"SLURM_PROCID"))
        if rank is not None:
            ranks[int(rank)] = pid
    return ranks


def listening_ports(host):
    """Ports on which the program listens on a host: set of (address, port)."""
    text = subprocess.run(on(host, "ss", "-H", "-ltnp"), capture_output=True, text=True, check=True).stdout
    ports = set()
    for line in text.splitlines():
        if '"tessera' in line:  # rank 0's store has a name of its own
            address, port = line.split()[3].rsplit(":", 1)
            ports.add((address.strip("[]"), int(port)))
    return ports


# --- what a run left --------------------------------------------------------------------------------------------------


def events(run_folder, name):
    """The events of a run, by step; later lines of a step supersede earlier ones. Torn lines do not count."""
    found = {}
    path = run_folder / "metrics.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("event") == name:
            found[event.get("step", len(found))] = event
    return found


def newest_step(run_folder):
    return max(events(run_folder, "step"), default=0)


def checkpoints(run_folder):
    folder = run_folder / "checkpoints"
    return sorted(p.name for p in folder.iterdir() if p.name.startswith("step_")) if folder.is_dir() else []


def tensors(run_folder):
    """The tensors of the newest checkpoint's model: name -> array of floats. Read without the program's own code."""
    path = run_folder / "checkpoints" / checkpoints(run_folder)[-1] / "model.safetensors"
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    result = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        expect(entry["dtype"] == "F32", f"{path}: {name} is {entry['dtype']}")
        begin, end = entry["data_offsets"]
        values = array.array("f")
        values.frombytes(raw[8 + size + begin:8 + size + end])
        result[name] = values
    return result


def compare_tensors(one, other):
    """The largest relative difference over the tensors, and its tensor's name."""
    expect(one.keys() == other.keys(), f"tensors differ: {sorted(one.keys() ^ other.keys())}")
    worst = (0.0, "")
    for name, a in one.items():
        b = other[name]
        expect(len(a) == len(b), f"{name} has {len(a)} and {len(b)} values")
        pairs = list(zip(a, b))
        if name.endswith("c_attn.bias"):
            third = len(pairs) // 3  # the keys': their true gradient is zero, Adam steps on rounding noise
            pairs = pairs[:third] + pairs[2 * third:]
        difference = math.sqrt(sum((x - y) ** 2 for x, y in pairs))
        norm = math.sqrt(sum(y * y for _, y in pairs))
        worst = max(worst, (difference / norm if norm else difference, name))
    return worst


def expect_same_training(run_folder, reference, steps):
    """Losses of all steps and final weights equal those of the reference. Returns the two differences, as text."""
    mine, theirs = events(run_folder, "step"), events(reference, "step")
    wanted = list(range(1, steps + 1))
    expect(sorted(mine) == wanted, f"{run_folder.name} has the steps {sorted(mine)}")
    loss = max(abs(mine[s]["loss"] - theirs[s]["loss"]) / abs(theirs[s]["loss"]) for s in wanted)
    weights, name = compare_tensors(tensors(run_folder), tensors(reference))
    text = f"losses {loss:.1e}, tensors {weights:.1e}"
    expect(loss <= EQUAL, f"losses differ: {text}")
    expect(weights <= EQUAL, f"weights differ, most in {name}: {text}")
    return text
