#!/usr/bin/env python3
"""What a checkpoint of shards costs: seconds from the start of a save until it is durable, of GPT-2 124M (1.5 GB with its
optimizer state), written by one rank, and by N ranks of full_shard together; alternating in one run.

    python benchmarks/compare/saving.py                     # 4 ranks, 5 rounds; needs 4 GB of disk

Each round trains two steps of 64 tokens, saves after each and takes the second: by then nothing computes. Seconds are the
checkpoint's own (write_seconds in its info.json). Needs the project's program; no torch in Python.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import run


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", type=Path, default=run.ROOT / "build" / "tessera")
    parser.add_argument("--data", type=Path, default=run.ROOT / ".." / "shared" / "data", help="folder of the real data")
    parser.add_argument("--folder", type=Path, help="where checkpoints are written (default: the temporary folder)")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preset", default="gpt2")
    parser.add_argument("--out", type=Path, help="write everything as JSON here")
    return parser.parse_args()


def save(arguments, folder, ranks):
    name = folder / f"ranks{ranks}"
    config = folder / "saving.yaml"
    config.write_text(f"model: {{preset: {arguments.preset}, dropout: 0}}\n")
    command = [arguments.tessera, "train", config, f"data.train={arguments.data / 'tinyshakespeare.txt'}",
               f"data.tokenizer={arguments.data / 'gpt2'}", "data.block_size=64", f"train.global_batch_size={ranks}",
               "train.batch_size=1", "train.max_steps=2", "train.eval_every=0", "checkpoint.every=1", "checkpoint.keep=1",
               "checkpoint.best=false", "checkpoint.unified_model=false", "precision.compute=f32", "run.threads=1",
               f"run.dir={name}", "--fresh", "--json", "-q"]
    if ranks > 1:
        command += ["--nproc", ranks, "parallel.strategy=full_shard"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1800)
    if done.returncode != 0:
        raise SystemExit(f"error: the run on {ranks} ranks failed: {done.stderr.strip().splitlines()[-1:]}")
    info = (name / "checkpoints" / "step_00000002" / "info.json").read_text()
    seconds = json.loads(info)["write_seconds"]
    for old in folder.glob(f"ranks{ranks}*"):
        subprocess.run(["rm", "-rf", str(old)], check=True)
    return seconds


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        seconds = {1: [], arguments.ranks: []}
        for number in range(arguments.rounds):
            for ranks in sorted(seconds, reverse=number % 2 == 1):
                seconds[ranks].append(save(arguments, folder, ranks))
            print(json.dumps({"round": number + 1, **{str(ranks): of[-1] for ranks, of in seconds.items()}}), flush=True)
    one, many = statistics.median(seconds[1]), statistics.median(seconds[arguments.ranks])
    print(f"one rank {one:.2f} s, {arguments.ranks} ranks {many:.2f} s: ratio {many / one:.2f} "
          f"(medians of {arguments.rounds} rounds)")
    if arguments.out:
        arguments.out.write_text(json.dumps({"seconds": seconds, "ratio": many / one}, indent=1))


if __name__ == "__main__":
    main()
