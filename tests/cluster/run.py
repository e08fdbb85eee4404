#!/usr/bin/env python3
"""Trains over two hosts of a real Slurm on this one machine, and by every other launcher: python3 tests/cluster/run.py [CASE…]

Starts the cluster of scripts/cluster.sh and stops it in any case. Ends with a table and the line "N passed, N failed,
N skipped"; exits with 1 if any failed. Where the machine does not allow the cluster (no root, no namespaces, no Slurm),
its cases are skipped, and the reason is printed. KEEP=1 keeps the folder of the runs.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import faults
import install
import launchers
from cluster import ROOT, SCRIPT, TESSERA, Background, Failure, Skip

WITHOUT_CLUSTER = {launchers.one_process, launchers.nproc, launchers.launch, launchers.torchrun, launchers.mpirun,
                   *install.CASES}


def sample_text(lines):
    """As tests/integration/tiny_run.h makes it: sentences in an order that is always the same."""
    words = "the a cat dog sat on mat under big small red house tree walks and but then or so runs".split()
    state, text = 12345, []
    for _ in range(lines):
        line = []
        for _ in range(11):
            state = (state * 1664525 + 1013904223) % 2**32
            line.append(words[(state >> 16) % len(words)])
        text.append(" ".join(line) + ".\n")
    return "".join(text)


class Bench:
    """The shared folder in which all cases run."""

    def __init__(self, folder):
        self.folder = folder
        self.reference = folder / "runs" / "reference"
        (folder / "text.txt").write_text(sample_text(120))
        shutil.copy(ROOT / "tests" / "cluster" / "tiny.yaml", folder)


def start_cluster():
    """None, or why there is no cluster here."""
    started = subprocess.run([SCRIPT, "start"], capture_output=True, text=True, timeout=120)
    print(started.stderr.strip(), flush=True)
    if started.returncode == 77:
        return started.stderr.strip().splitlines()[-1].removeprefix("error: ")
    if started.returncode != 0:
        raise SystemExit(f"the cluster did not start\n\n0 passed, 1 failed, 0 skipped")
    return None


def run_case(case, bench, why_not):
    started = time.monotonic()
    try:
        if why_not and case not in WITHOUT_CLUSTER:
            raise Skip(why_not)
        verdict, note = "passed", case(bench) or ""
    except Skip as skip:
        verdict, note = "skipped", str(skip)
    except Failure as failure:
        verdict, note = "FAILED", str(failure)
    except Exception:  # a defect of the test is a failure of it, and the others still run
        verdict, note = "FAILED", traceback.format_exc()
    seconds = time.monotonic() - started
    print(f"{verdict:8} {case.__name__:18} {seconds:5.1f} s  {note}", flush=True)
    return verdict, f"{case.__name__:18} {seconds:5.1f} s  {verdict:8} {note.splitlines()[0][:150] if note else ''}"


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cases = launchers.CASES + install.CASES + faults.CASES
    wanted = set(sys.argv[1:])
    unknown = wanted - {case.__name__ for case in cases}
    if unknown:
        print(f"error: no such case: {', '.join(sorted(unknown))} ({', '.join(c.__name__ for c in cases)})", file=sys.stderr)
        return 2
    if not TESSERA.exists():
        print("error: there is no build/tessera. Build it first: make build", file=sys.stderr)
        return 1
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-cluster-test-"))
    counts, table = {"passed": 0, "FAILED": 0, "skipped": 0}, []
    try:
        bench = Bench(folder)
        why_not = start_cluster()
        for case in cases:
            if wanted and case.__name__ not in wanted and case is not launchers.one_process:
                continue
            verdict, line = run_case(case, bench, why_not)
            counts[verdict] += 1
            table.append(line)
            if case is launchers.one_process and verdict != "passed":
                break
    finally:
        for command in Background.started:
            if command.running():
                command.kill()
        subprocess.run([SCRIPT, "stop"], timeout=60)
        if os.environ.get("KEEP"):
            print(f"the runs are kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print("\n" + "\n".join(table))
    print(f"\n{counts['passed']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped")
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
