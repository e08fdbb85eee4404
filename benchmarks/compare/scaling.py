#!/usr/bin/env python3
"""What talking costs: data parallel training of GPT-2 124M on the processes of this machine, against as many processes
that do not talk at all, and against PyTorch's DistributedDataParallel on Gloo; alternating in one run.

    python benchmarks/compare/scaling.py                 # 2 ranks, 1 thread each, 4 x 256 tokens a rank, 3 rounds
    python benchmarks/compare/scaling.py --strategy full_shard                  # the peer is PyTorch's fully_shard
    python benchmarks/compare/scaling.py --ranks 4 --rounds 1 --set parallel.transport=gloo
    python benchmarks/compare/scaling.py --strategy full_shard --sides ranks other \
        --other parallel.backward_prefetch=none parallel.forward_prefetch=false   # what a setting costs

alone: N separate trainings at the same time, one thread each; their tokens a second are added. ranks: one training on N
ranks. peer: the same work by DistributedDataParallel. other: as ranks, with the settings of --other as well. Tokens a second is the median of the step lines but the first two;
memory is the peak resident size of the largest process, as the kernel counts it. Wants an idle machine with a core for
each rank. Needs the project's environment (torch).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import run

HERE = Path(__file__).resolve().parent


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", type=Path, default=run.ROOT / "build" / "tessera")
    parser.add_argument("--python", type=Path, default=run.ROOT / ".venv" / "bin" / "python", help="has torch")
    parser.add_argument("--data", type=Path, default=run.ROOT / ".." / "shared" / "data", help="folder of the real data")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--strategy", default="ddp", help="parallel.strategy; but for ddp the peer is fully_shard")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=3600, help="seconds that one side may take")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="another setting for Tessera")
    parser.add_argument("--other", nargs="+", default=[], metavar="a.b=c", help="settings of the side `other`")
    parser.add_argument("--sides", nargs="+", choices=["alone", "ranks", "peer", "other"],
                        help="which to run (default: alone, ranks and peer)")
    parser.add_argument("--out", type=Path, help="write everything as JSON here")
    arguments = parser.parse_args()
    arguments.sides = arguments.sides or ["alone", "ranks", "peer"]
    if ("other" in arguments.sides) != bool(arguments.other):
        parser.error("--other and the side `other` go together")
    for what, path in (("Tessera", arguments.tessera), ("Python with torch", arguments.python),
                       ("the data folder", arguments.data)):
        if not path.exists():
            parser.error(f"{what} is not at {path}. Run 'make build', or say where it is (--help).")
    arguments.threads, arguments.dtype, arguments.job = 1, "f32", "gpt2"
    return arguments


def tessera_command(arguments, folder, name, ours, ranks, settings=()):
    more = ["precision.compute=f32", "run.threads=1", "run.device=cpu", f"run.dir={folder / name}",
            f"train.global_batch_size={4 * ranks}", *arguments.set, *settings, "--fresh", "--json",
            "-q"]
    if ranks > 1:
        more += ["--nproc", ranks, f"parallel.strategy={arguments.strategy}"]
    return [str(part) for part in [arguments.tessera, *ours, *more]]


def measure_together(commands, arguments):
    """All at the same time; their rates added, their largest memory."""
    results, threads, children, failures = [None] * len(commands), [], [], []
    for i, command in enumerate(commands):
        def work(i=i, command=command):
            try:
                results[i] = run.measure(command, arguments, children)
            except run.SideFailed as error:
                failures.append(str(error))
        threads.append(threading.Thread(target=work))
        threads[-1].start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # Ctrl-C: the threads would wait for the ends of what they measure
        for child in children:
            if child.returncode is None:
                run.end_group(child)
        raise
    if failures:
        raise SystemExit(failures[0])
    if None in results:
        raise SystemExit("error: one of the processes could not be measured (see above)")
    return {"tokens_per_second": sum(result["tokens_per_second"] for result in results),
            "peak_rss_mib": max(result["peak_rss_mib"] for result in results),
            "train_loss": results[0]["train_loss"], "parameters": results[0]["parameters"]}


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, theirs = run.gpt2_commands(arguments, folder)
        peer = [arguments.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", arguments.ranks,
                *theirs, "--threads", 1, "--dtype", "f32", *([] if arguments.strategy == "ddp" else ["--shard"])]
        sides = {
            "alone": lambda: measure_together(
                [tessera_command(arguments, folder, f"alone{i}", ours, 1) for i in range(arguments.ranks)], arguments),
            "ranks": lambda: measure_together(
                [tessera_command(arguments, folder, "ranks", ours, arguments.ranks)], arguments),
            "peer": lambda: measure_together([[str(part) for part in peer]], arguments),
            "other": lambda: measure_together(
                [tessera_command(arguments, folder, "other", ours, arguments.ranks, arguments.other)], arguments),
        }
        sides = {side: measure for side, measure in sides.items() if side in arguments.sides}
        rounds = []
        for number in range(arguments.rounds):
            order = list(sides) if number % 2 == 0 else list(reversed(sides))
            rounds.append({side: sides[side]() for side in order})
            print(json.dumps({"round": number + 1, **rounds[-1]}), file=sys.stderr, flush=True)

    def median(of):
        values = [of(one) for one in rounds]
        return f"{statistics.median(values):.3f}  ({min(values):.3f}–{max(values):.3f})"

    def rate(side):
        return lambda one: one[side]["tokens_per_second"]

    def memory(side):
        return lambda one: one[side]["peak_rss_mib"]

    print(f"{arguments.strategy}, {arguments.ranks} ranks, 1 thread each, {run.hardware(arguments)['cpu']}, {os.cpu_count()} cores, "
          f"{arguments.rounds} rounds of {arguments.steps} steps: median (range)")
    for side in sides:
        print(f"{side:6} tok/s {median(rate(side))}   peak MiB of a process {median(memory(side))}")
    for side in sides:
        if side == "ranks" or "ranks" not in sides:
            continue
        print(f"ranks / {side}, tok/s ", median(lambda one: rate("ranks")(one) / rate(side)(one)))
        print(f"ranks / {side}, memory", median(lambda one: memory("ranks")(one) / memory(side)(one)))
    if arguments.out:
        arguments.out.write_text(json.dumps({"rounds": rounds, "hardware": run.hardware(arguments)}, indent=1))


if __name__ == "__main__":
    try:
        main()
    except subprocess.SubprocessError as error:
        raise SystemExit(f"error: {error}") from None
