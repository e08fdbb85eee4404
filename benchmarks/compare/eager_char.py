#!/usr/bin/env python3
"""A character model of Shakespeare in eager PyTorch: the work of configs/shakespeare-char.yaml (4 layers, 4 heads,
width 128, context 64, batch 12, random windows, AdamW, cosine with warm-up, clipping), the first 90 % of the characters
to train on and the rest to validate. Prints the JSON lines of docs/metrics.md.

    python benchmarks/compare/eager_char.py --data ../shared/data/tinyshakespeare.txt --steps 2000
"""

import argparse
import time
from pathlib import Path

import torch

import peer


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a text file")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--block", type=int, default=64)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--min-lr", type=float, default=1e-4)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--beta2", type=float, default=0.99)
    parser.add_argument("--eval-every", type=int, default=0, help="steps; 0: at the end only")
    parser.add_argument("--out", type=Path, help="save weights and optimizer here at the end")
    peer.add_common_arguments(parser)
    return parser.parse_args()


def load(path):
    text = path.read_text(encoding="utf-8")
    alphabet = sorted(set(text))
    index = {character: i for i, character in enumerate(alphabet)}
    ids = torch.tensor([index[character] for character in text])
    cut = len(ids) * 9 // 10
    return ids[:cut], ids[cut:], len(alphabet)


def draw(ids, arguments):
    starts = torch.randint(len(ids) - arguments.block, (arguments.batch, 1))
    windows = ids[(starts + torch.arange(arguments.block + 1)).to(ids.device)]
    return windows[:, :-1], windows[:, 1:]


@torch.inference_mode()
def evaluate(model, ids, arguments):
    """Every token of `ids` but the first is a target once."""
    blocks = (len(ids) - 1) // arguments.block
    inputs = ids[:blocks * arguments.block].view(blocks, arguments.block)
    targets = ids[1:blocks * arguments.block + 1].view(blocks, arguments.block)
    total = 0.0
    with peer.autocast(arguments):
        for part, wanted in zip(inputs.split(arguments.batch), targets.split(arguments.batch)):
            total += model(part, wanted).item() * wanted.numel()
        count = targets.numel()
        rest = ids[blocks * arguments.block:]
        if len(rest) > 1:
            total += model(rest[None, :-1], rest[None, 1:]).item() * (len(rest) - 1)
            count += len(rest) - 1
    return total / count


def main():
    arguments = parse()
    peer.prepare(arguments)
    train, validation, vocabulary = load(arguments.data)
    train, validation = train.to(arguments.device), validation.to(arguments.device)
    model = peer.Gpt2(arguments.layers, arguments.heads, arguments.width, arguments.block, vocabulary)
    model.to(arguments.device)
    optimizer = peer.make_optimizer(model, arguments.lr, (0.9, arguments.beta2), 0.1)
    forward = torch.compile(model) if arguments.compile else model
    report = peer.Reporter(arguments.log_every, arguments.batch * arguments.block)
    report.start("eager_char", model.parameter_count(), arguments.batch)
    best = loss = None
    for step in range(1, arguments.steps + 1):
        began = time.perf_counter()
        lr = peer.cosine(step, arguments.lr, arguments.min_lr, arguments.warmup, arguments.steps)
        loss, norm = peer.update(forward, optimizer, draw(train, arguments), lr, 1.0, arguments)
        report.step(step, loss, norm, lr, time.perf_counter() - began)
        due = arguments.eval_every and step % arguments.eval_every == 0
        if due or step == arguments.steps:
            began = time.perf_counter()
            value = evaluate(model, validation, arguments)
            best = value if best is None else min(best, value)
            report.evaluation(step, value, began)
    if arguments.out:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, arguments.out)
    report.end(arguments.steps, loss, best)


if __name__ == "__main__":
    main()
