#!/usr/bin/env python3
"""GPT-2 124M from scratch in eager PyTorch: batch 4 x 256 real tokens, AdamW with clipping at 1.0, no dropout. Prints
the JSON lines of docs/metrics.md, and its peak memory at the end.

    python benchmarks/compare/eager_gpt2.py --tokens ../shared/data/gpt2/gpt2_tokens.jsonl --steps 5

With RANK and WORLD_SIZE in the environment (torchrun), it is one rank of DistributedDataParallel on Gloo, on the CPU,
or with --shard of fully_shard (a block a unit, the rest with the root): --batch is then the rows of each rank, and rank 0
reports the tokens of all.
"""

import argparse
import json
import os
import time
from array import array
from pathlib import Path

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import peer


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=Path, required=True,
                        help='GPT-2 ids: JSON lines with "ids", or raw 16-bit little-endian numbers (.u16)')
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--block", type=int, default=256)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--shard", action="store_true", help="several ranks: fully_shard in place of replicas")
    peer.add_common_arguments(parser)
    arguments = parser.parse_args()
    if arguments.device != "cpu" and int(os.environ.get("WORLD_SIZE", 1)) > 1:
        parser.error("several ranks are for the CPU only: leave --device out")
    if arguments.shard and int(os.environ.get("WORLD_SIZE", 1)) == 1:
        parser.error("--shard wants several ranks: start it with torchrun")
    return arguments


def load(path):
    if path.suffix == ".u16":
        ids = array("H", path.read_bytes())
    else:
        ids = []
        for line in path.read_text().splitlines():
            ids += json.loads(line)["ids"]
    return torch.tensor(ids, dtype=torch.int64)


def main():
    arguments = parse()
    peer.prepare(arguments)
    ids = load(arguments.tokens).to(arguments.device)
    model = peer.Gpt2(arguments.layers, 12, 768, 1024, 50257).to(arguments.device)
    parameters = model.parameter_count()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    if arguments.shard:
        mesh = init_device_mesh("cpu", (ranks,))
        for block in model.h:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = peer.make_optimizer(model, arguments.lr, (0.9, 0.95), 0.1)
    if ranks > 1 and not arguments.shard:
        forward = DistributedDataParallel(model)
    else:
        forward = torch.compile(model) if arguments.compile else model
    tokens = arguments.batch * arguments.block
    # Ranks other than 0 keep their lines to themselves.
    report = peer.Reporter(arguments.log_every if rank == 0 else arguments.steps + 1, tokens * ranks)
    if rank == 0:
        report.start("eager_gpt2", parameters, arguments.batch * ranks)
    loss = None
    for step in range(1, arguments.steps + 1):
        began = time.perf_counter()
        at = ((step - 1) * ranks + rank) * tokens % (len(ids) - tokens)
        inputs = ids[at:at + tokens].view(arguments.batch, -1)
        targets = ids[at + 1:at + tokens + 1].view(arguments.batch, -1)
        loss, norm = peer.update(forward, optimizer, (inputs, targets), arguments.lr, 1.0, arguments)
        report.step(step, loss, norm, arguments.lr, time.perf_counter() - began)
    if rank == 0:
        report.end(arguments.steps, loss, None)
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
