#!/usr/bin/env python3
"""Measures gloo, mpi and shm among ranks of this host and prints the table of docs/distributed.md.

usage: benchmarks/collectives.py PROGRAM [--ranks 2,4] [--mib 0,1,8,64,256] [--rounds 3]

PROGRAM is the built benchmarks/collectives. The transports take turns, round by round, so that whatever else the machine
does falls on all of them; the table holds the median over rounds. MiB 0 stands for 64 bytes.
"""
import argparse
import collections
import os
import shutil
import statistics
import subprocess
import sys

VERBS = ("all_reduce", "all_gather", "reduce_scatter")


def command(program, transport, ranks, sizes):
    words = [program, transport, str(ranks), *sizes]
    if transport != "mpi":
        return words
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *words]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--mib", default="0,1,8,64,256")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sizes = options.mib.split(",")
    transports = ["gloo", "shm"] + (["mpi"] if shutil.which("mpirun") else [])
    times, cpu = collections.defaultdict(list), collections.defaultdict(list)
    for _ in range(options.rounds):
        for ranks in options.ranks.split(","):
            for transport in transports:
                words = command(options.program, transport, ranks, sizes)
                done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=600)
                if done.returncode != 0:
                    sys.exit(f"error: {' '.join(words)} exited with {done.returncode}")
                for line in done.stdout.splitlines():
                    name, n, verb, mib, ms, cpu_ms = line.split()
                    times[name, n, verb, mib].append(float(ms))
                    cpu[name, n, verb, mib].append(float(cpu_ms))
    print("| ranks | verb | size | " + " | ".join(f"{t}, ms (CPU ms)" for t in transports) + " |")
    print("|---|---|---|" + "---|" * len(transports))
    for ranks in options.ranks.split(","):
        for verb in VERBS:
            for mib in sizes:
                cells = []
                for transport in transports:
                    key = transport, ranks, verb, mib
                    ms, used = statistics.median(times[key]), statistics.median(cpu[key])
                    cells.append(f"{ms:.3g} ({used:.3g})")
                size = f"{mib} MiB" if mib != "0" else "64 bytes"
                print(f"| {ranks} | {verb} | {size} | " + " | ".join(cells) + " |")
    print(f"\n{os.cpu_count()} processors; {options.rounds} rounds", file=sys.stderr)


main()
