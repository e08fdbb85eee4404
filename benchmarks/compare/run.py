#!/usr/bin/env python3
"""Tessera against PyTorch on this machine, alternating in one run: machines differ and drift, so
only the ratios of one run count.

    python benchmarks/compare/run.py char              # the whole small training, both sides, 3 rounds
    python benchmarks/compare/run.py gpt2              # a few steps of GPT-2 124M
    python benchmarks/compare/run.py char --steps 200 --rounds 1 --peer compile
    python benchmarks/compare/run.py gpt2 --device cuda --peer both --rows 8 --block 1024 --dtype bf16

The sides are separate processes with the same threads, data, model, batch and optimizer, and print the JSON lines of
docs/metrics.md; their parameter counts must be equal. Measured from outside: wall time of the process, time to its
first step line, peak resident memory (wait4), and on a GPU the most of its memory in use above what was in use before, as
the driver counts it. Tokens a second is the median of the step lines but the first ones. A round is one run of each side,
in an order that alternates; a ratio is formed in each round, and the table shows the median and the range of the rounds.
Needs Python and, for the peers, torch (the project's environment). A peer that fails is named at the end, and the exit code
is then 1.
"""

import argparse
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CPU_FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "avx512_fp16", "asimd", "sve", "bf16")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job", choices=["char", "gpt2"])
    parser.add_argument("--tessera", type=Path, default=ROOT / "build" / "tessera")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv" / "bin" / "python", help="has torch")
    parser.add_argument("--data", type=Path, default=ROOT / ".." / "shared" / "data", help="folder of the real data")
    parser.add_argument("--peer", choices=["eager", "compile", "both"], default="eager")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N, of all sides")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32", help="of both sides")
    parser.add_argument("--steps", type=int, help="optimizer steps (char: 2000, gpt2: 6)")
    parser.add_argument("--layers", type=int, default=12, help="of the model (gpt2)")
    parser.add_argument("--rows", type=int, default=4, help="sequences of a step (gpt2)")
    parser.add_argument("--block", type=int, default=256, help="tokens of a sequence (gpt2)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=3600, help="seconds that one side may take")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="another setting for Tessera")
    parser.add_argument("--out", type=Path, help="write everything as JSON here")
    arguments = parser.parse_args()
    arguments.steps = arguments.steps or {"char": 2000, "gpt2": 6}[arguments.job]
    for what, path in (("Tessera", arguments.tessera), ("Python with torch", arguments.python),
                       ("the data folder", arguments.data)):
        if not path.exists():
            parser.error(f"{what} is not at {path}. Run 'make build', or say where it is (--help).")
    if arguments.rounds < 1 or arguments.steps < 3:
        parser.error("needs at least 1 round and 3 steps")
    if min(arguments.layers, arguments.rows, arguments.block) < 1 or arguments.block > 1024:
        parser.error("needs at least 1 layer and 1 row, and from 1 to 1024 tokens in a sequence")
    return arguments


def char_commands(arguments, folder):
    text = arguments.data / "tinyshakespeare.txt"
    every = max(1, arguments.steps // 20)
    warmup = min(100, arguments.steps // 10)
    ours = ["train", ROOT / "configs" / "shakespeare-char.yaml", f"data.train={text}", "data.train_fraction=0.9",
            "data.tokenizer=char", "data.block_size=64", "data.sampling=windows", "model.n_layer=4", "model.n_head=4",
            "model.n_embd=128", "model.n_positions=64", "model.dropout=0", "optim.name=adamw", "optim.lr=3e-3",
            "optim.min_lr=1e-4", f"optim.warmup={warmup}", f"optim.decay_steps={arguments.steps}",
            "optim.schedule=cosine",
            "optim.betas=[0.9,0.99]", "optim.weight_decay=0.1", "optim.grad_clip=1", "train.batch_size=12",
            f"train.max_steps={arguments.steps}", f"train.eval_every={arguments.steps}", "train.eval_batches=0",
            "checkpoint.every=0", "checkpoint.on_exit=true", f"log.every={every}"]
    theirs = [HERE / "eager_char.py", "--data", text, "--steps", arguments.steps, "--log-every", every,
              "--warmup", warmup, "--out", folder / "peer.pt"]
    return ours, theirs


def gpt2_commands(arguments, folder, layers=12, rows=4, block=256):
    text = arguments.data / "tinyshakespeare.txt"
    config = folder / "gpt2.yaml"
    config.write_text(f"model: {{preset: gpt2, n_layer: {layers}, dropout: 0}}\n")
    ours = ["train", config, f"data.train={text}", f"data.tokenizer={arguments.data / 'gpt2'}", f"data.block_size={block}",
            "optim.name=adamw", "optim.lr=6e-4", "optim.schedule=constant", "optim.betas=[0.9,0.95]",
            "optim.weight_decay=0.1", "optim.grad_clip=1", f"train.batch_size={rows}", f"train.max_steps={arguments.steps}",
            "train.eval_every=0", "checkpoint.every=0", "checkpoint.on_exit=false", "checkpoint.best=false",
            "log.every=1"]
    theirs = [HERE / "eager_gpt2.py", "--tokens", gpt2_tokens(arguments, text, folder), "--steps", arguments.steps,
              "--batch", rows, "--block", block, "--layers", layers]
    return ours, theirs


def gpt2_tokens(arguments, text, folder):
    """The same text as ids, by Tessera's tokenizer; without it, ids of other real text."""
    command = [arguments.tessera, "tokenizer", "encode", arguments.data / "gpt2", "--file", text, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        ids = json.loads(done.stdout.splitlines()[0])["ids"]
    except (subprocess.SubprocessError, OSError, ValueError, IndexError, KeyError) as error:
        print(f"warning: the peer trains on other text: tokenizer encode failed ({error})", file=sys.stderr)
        return arguments.data / "gpt2" / "gpt2_tokens.jsonl"
    path = folder / "tokens.u16"
    path.write_bytes(array("H", ids).tobytes())
    return path


def commands(arguments, folder):
    """Name → command of each side, as text for the record."""
    if arguments.job == "char":
        ours, theirs = char_commands(arguments, folder)
    else:
        ours, theirs = gpt2_commands(arguments, folder, arguments.layers, arguments.rows, arguments.block)
    ours = [arguments.tessera, *ours, f"precision.compute={arguments.dtype}", f"run.threads={arguments.threads}",
            f"run.dir={folder / 'run'}", f"run.device={arguments.device}", *arguments.set, "--fresh", "--json", "-q"]
    theirs = [arguments.python, *theirs, "--threads", arguments.threads, "--dtype", arguments.dtype,
              "--device", arguments.device]
    sides = {"tessera": ours, "eager": theirs, "compile": [*theirs, "--compile"]}
    chosen = ["tessera", *(["eager", "compile"] if arguments.peer == "both" else [arguments.peer])]
    return {side: [str(part) for part in sides[side]] for side in chosen}


class SideFailed(SystemExit):
    """One of the processes did not do its work; the text says which and why."""


class GpuMemory:
    """The most of a GPU's memory in use while a process runs, above what was in use before; None where nvidia-smi does
    not tell. Of the whole device, so nothing else may run on it."""

    def __init__(self, device):
        self.peak_mib = self.watch = None
        if device == "cpu":
            return
        index = int(device.partition(":")[2] or 0)
        visible = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part]
        self.command = ["nvidia-smi", f"--id={visible[index] if index < len(visible) else index}",
                        "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        before = output_of(*self.command)
        if not before.isdigit():
            print("warning: nvidia-smi does not tell the GPU's memory in use", file=sys.stderr)
            return
        self.before, self.peak_mib = int(before), 0
        self.watch = subprocess.Popen([*self.command, "--loop-ms=100"], stdout=subprocess.PIPE, text=True,
                                      stderr=subprocess.DEVNULL)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.watch.stdout:
            if line.strip().isdigit():
                self.peak_mib = max(self.peak_mib, int(line) - self.before)

    def end(self):
        if self.watch is not None:
            self.watch.kill()
            self.watch.wait()
            self.reader.join(timeout=5)
        return self.peak_mib


def end_group(child):
    """Ends the process and what it started: it leads a group of its own."""
    os.killpg(child.pid, signal.SIGKILL)


def measure(command, arguments, children=None):
    """Runs one process and reads its events; peak memory and processor time as the kernel counts them for it. `children`: a
    list that the process is added to, for who must be able to end it from another thread."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
    memory = GpuMemory(getattr(arguments, "device", "cpu"))
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as messages:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=messages, env=environment, text=True,
                                 start_new_session=True)
        if children is not None:
            children.append(child)
        alarm = threading.Timer(arguments.timeout, end_group, [child])
        alarm.start()
        events, first_step = [], None
        try:
            for line in child.stdout:
                events.append(parse_event(line, command))
                if events[-1]["event"] == "step" and first_step is None:
                    first_step = time.perf_counter() - begin
        except BaseException:
            end_group(child)
            raise
        finally:
            # The process must still be there while the alarm can go off: wait4 reaps it.
            child.stdout.close()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            alarm.cancel()
            gpu_memory = memory.end()
        wall = time.perf_counter() - begin
        if child.returncode != 0:
            messages.seek(0)
            tail = messages.read().decode(errors="replace")[-2000:]
            late = f"no end after {arguments.timeout:.0f} s"
            ended = late if wall >= arguments.timeout else f"exit code {child.returncode}"
            raise SideFailed(f"error: {ended} of\n  {shlex.join(command)}\n{tail}")
    return dict(summarise(events, wall, first_step, usage), gpu_memory_mib=gpu_memory)


def parse_event(line, command):
    try:
        return json.loads(line)
    except ValueError:
        raise SideFailed(f"error: not a JSON line on stdout: {line.strip()[:200]}\n  {shlex.join(command)}") from None


def summarise(events, wall, first_step, usage):
    steps = [event for event in events if event["event"] == "step"]
    if len(steps) < 2:
        raise SideFailed("error: fewer than two step lines; raise --steps")
    # The first lines hold the warm-up of caches, allocators and compilers.
    steady = steps[min(2, len(steps) - 1):]
    evals = [event["loss"] for event in events if event["event"] == "eval"]
    return {
        "parameters": events[0]["parameters"], "batch": events[0]["global_batch_size"],
        "tokens": steps[-1]["tokens"] / steps[-1]["step"],
        "tokens_per_second": statistics.median(event["tokens_per_second"] for event in steady),
        "wall_seconds": wall, "first_step_seconds": first_step,
        "peak_rss_mib": usage.ru_maxrss / 1024, "processor_seconds": usage.ru_utime + usage.ru_stime,
        "train_loss": steps[-1]["loss"], "validation_loss": evals[-1] if evals else None,
    }


def read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def output_of(*command):
    try:
        return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, cwd=ROOT,
                              check=False).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def gpu_name(arguments):
    device = getattr(arguments, "device", "cpu")
    if device == "cpu":
        return None
    program = f"import torch; print(torch.cuda.get_device_name('{device}'))"
    return output_of(arguments.python, "-c", program) or "unknown"


def hardware(arguments):
    facts = dict(line.split(":", 1) for line in read("/proc/cpuinfo").split("\n\n")[0].splitlines() if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    memory = next((line.split()[1] for line in read("/proc/meminfo").splitlines() if line.startswith("MemTotal")), "0")
    return {
        "cpu": facts.get("model name", platform.processor()), "gpu": gpu_name(arguments),
        "flags": [flag for flag in CPU_FLAGS if flag in flags],
        "cores": os.cpu_count(), "threads": arguments.threads, "memory_gib": round(int(memory) / 2**20, 1),
        "load_before": os.getloadavg()[0], "system": platform.platform(),
        "torch": output_of(arguments.python, "-c", "import torch; print(torch.__version__)"),
        "revision": output_of("git", "describe", "--always", "--dirty"),
    }


MEASURES = [  # key, words, digits, whether more is better
    ("tokens_per_second", "tokens/s", 0, True),
    ("wall_seconds", "wall time, s", 1, False),
    ("first_step_seconds", "start to first step line, s", 2, False),
    ("peak_rss_mib", "peak RSS, MiB", 0, False),
    ("gpu_memory_mib", "peak GPU memory, MiB", 0, False),
    ("processor_seconds", "processor time, s", 1, False),
    ("train_loss", "last training loss", 4, False),
    ("validation_loss", "validation loss", 4, False),
]


def spread(values, digits):
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def table(rounds, peer, peer_name):
    rows = [f"| median (range) of {len(rounds)} | Tessera | {peer_name} | Tessera / {peer_name} |", "|---|---|---|---|"]
    for key, words, digits, more in MEASURES:
        pairs = [(one["tessera"][key], one[peer][key]) for one in rounds]
        if any(value is None for pair in pairs for value in pair):
            continue
        ratio = spread([ours / theirs for ours, theirs in pairs], 3)
        better = "" if "loss" in key else (" (more is better)" if more else " (less is better)")
        rows.append(f"| {words}{better} | {spread([p[0] for p in pairs], digits)} | "
                    f"{spread([p[1] for p in pairs], digits)} | {ratio} |")
    return "\n".join(rows)


def check_same_work(sides):
    for peer, result in sides.items():
        for key in ("parameters", "batch", "tokens"):
            if sides["tessera"][key] != result[key]:
                print(f"warning: not the same work: {key} {sides['tessera'][key]} against {result[key]} of {peer}",
                      file=sys.stderr)


def measure_round(sides, order, failed, arguments):
    """Name → result. A peer that fails is left out from then on; without Tessera there is nothing to compare."""
    results = {}
    for side in order:
        if side in failed:
            continue
        try:
            results[side] = measure(sides[side], arguments)
        except SideFailed as error:
            if side == "tessera":
                raise
            failed[side] = str(error)
            print(f"{side} failed; {failed[side]}", file=sys.stderr)
            continue
        print(f"{side}: {json.dumps(results[side])}", file=sys.stderr)
    check_same_work(results)
    return results


def print_tables(arguments, facts, rounds, failed):
    print(f"{arguments.job}, {arguments.steps} steps, {arguments.dtype}, {arguments.threads} threads; {facts['cpu']}, "
          f"{' '.join(facts['flags'])}{', ' + facts['gpu'] if facts['gpu'] else ''}; Tessera {facts['revision']}")
    for peer in rounds[0]:
        if peer != "tessera" and peer not in failed:
            print("\n" + table(rounds, peer, f"PyTorch {facts['torch']} {peer}"))


def main():
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended, too
    facts = hardware(arguments)
    print(json.dumps(facts), file=sys.stderr)
    if facts["load_before"] > 0.5:
        print(f"warning: the machine is busy (load {facts['load_before']:.1f}): ratios will be noisy", file=sys.stderr)
    rounds, failed = [], {}
    with tempfile.TemporaryDirectory(prefix="tessera-compare-") as name:
        sides = commands(arguments, Path(name))
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            order = list(sides) if number % 2 == 0 else list(reversed(sides))
            rounds.append(measure_round(sides, order, failed, arguments))
    print_tables(arguments, facts, rounds, failed)
    if arguments.out:
        record = {"job": arguments.job, "steps": arguments.steps, "hardware": facts,
                  "commands": {side: shlex.join(command) for side, command in sides.items()}, "rounds": rounds,
                  "failed": failed}
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    if failed:
        raise SystemExit("error: not all sides could be measured: " + ", ".join(failed) + " (see above)")


if __name__ == "__main__":
    main()
