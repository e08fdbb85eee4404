#!/usr/bin/env python3
"""Learning rates of every schedule, from the schedulers of PyTorch and Hugging Face transformers.

    python tests/reference/lr_schedules.py [--check]

Needs torch and transformers. Writes lr_schedules.json beside itself; --check compares with what is there instead.

Definitions. t is the number of the optimizer update, 1 for the first, the same number as `step` in every event;
w = optim.warmup in steps, D = optim.decay_steps (the total number of steps unless set; the warm-up is part of it).
For t <= w every schedule warms up: lr(t) = peak * t / w, so the peak is reached at t = w. For t > w:
    constant      peak
    linear        min + (peak - min) * (1 - p),                    p = min(1, (t - w) / (D - w))
    cosine        min + (peak - min) * (1 + cos(pi * p)) / 2       with the same p
    wsd           peak until t = D - n, then min + (peak - min) * (1 - q),  q = min(1, (t - D + n) / n),
                  n = round(optim.wsd_decay * D), at least 1 and at most D - w
    inverse_sqrt  max(min, peak * sqrt(w / t)); without a warm-up w = 10000 and t counts on from there:
                  peak * sqrt(10000 / (t + 10000))
    exponential   max(min, peak * gamma^(t - w))
    plateau       peak, multiplied by `factor` when more than `patience` evaluations in a row were not better than the
                  best before them by a factor 1 - 1e-4; never below min; the count starts anew after each fall. A
                  change below 1e-8 is not made.
linear, cosine and wsd stay at min after D; where D <= w, they are at min behind the warm-up.
LambdaLR starts at 0 before the first update: the value of update t is read after t calls of scheduler.step().
"""

import argparse
import json
import math
import warnings
from pathlib import Path

import torch
import transformers
from torch.optim import lr_scheduler as pt
from transformers import optimization as hf

HERE = Path(__file__).resolve().parent
PEAK, MIN = 1e-3, 1e-4


def optimizer(lr=PEAK):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def course(make, steps):
    """Learning rate of updates 1…steps."""
    opt = optimizer()
    scheduler = make(opt)
    values = []
    for _ in range(steps):
        opt.step()
        scheduler.step()
        values.append(opt.param_groups[0]["lr"])
    return values


def warmed(after, warmup, steps):
    """Hugging Face's linear warm-up from 0, then the values of `after` for updates 1, 2, … behind it."""
    ramp = course(lambda o: hf.get_constant_schedule_with_warmup(o, warmup), min(warmup, steps))
    return (ramp + course(after, steps - warmup)) if steps > warmup else ramp


def agree(name, a, b):
    worst = max(abs(x - y) for x, y in zip(a, b))
    if worst > 1e-15:
        raise SystemExit(f"{name}: two libraries differ by {worst:.3g}")


def linear(w, d, steps):
    # Hugging Face's ends at 0, PyTorch's at a factor: the same at 0.
    agree("linear", warmed(lambda o: pt.LinearLR(o, 1.0, 0.0, d - w), w, steps),
          course(lambda o: hf.get_linear_schedule_with_warmup(o, w, d), steps))
    return warmed(lambda o: pt.LinearLR(o, 1.0, MIN / PEAK, d - w), w, steps)


def cosine(w, d, steps):
    values = course(lambda o: hf.get_cosine_with_min_lr_schedule_with_warmup(o, w, d, min_lr=MIN), d)
    values += [MIN] * (steps - d)  # both libraries would rise again after D; the schedule ends there
    agree("cosine", values[:d], warmed(lambda o: pt.CosineAnnealingLR(o, d - w, MIN), w, d))
    return values[:steps]


def wsd(w, d, fraction, steps):
    n = min(max(1, round(fraction * d)), d - w)
    values = course(lambda o: hf.get_wsd_schedule(o, w, n, num_training_steps=d, decay_type="linear",
                                                  min_lr_ratio=MIN / PEAK), steps)
    # Hugging Face warms up from min; here every schedule warms up from 0.
    return course(lambda o: hf.get_constant_schedule_with_warmup(o, w), min(w, steps)) + values[w:]


def floored(values, warmup):
    return values[:warmup] + [max(MIN, value) for value in values[warmup:]]


def inverse_sqrt(w, steps):
    return floored(course(lambda o: hf.get_inverse_sqrt_schedule(o, w), steps), w)


def exponential(w, gamma, steps):
    return floored(warmed(lambda o: pt.ExponentialLR(o, gamma), w, steps), w)


def plateau(losses, factor, patience):
    """Learning rate after each evaluation loss."""
    opt = optimizer()
    scheduler = pt.ReduceLROnPlateau(opt, factor=factor, patience=patience, min_lr=MIN)
    values = []
    for loss in losses:
        scheduler.step(math.nan if loss is None else loss)
        values.append(opt.param_groups[0]["lr"])
    return values


def make_cases():
    cases = []

    def add(schedule, lr, **settings):
        cases.append(dict(schedule=schedule, peak=PEAK, min=MIN, **settings, lr=lr))

    for w, d, steps in ((5, 20, 24), (0, 20, 24), (10, 100, 110), (20, 20, 24), (1, 2, 4)):
        common = dict(warmup=w, decay_steps=d)
        add("constant", course(lambda o, w=w: hf.get_constant_schedule_with_warmup(o, w), steps), **common)
        if d > w:
            add("linear", linear(w, d, steps), **common)
            add("cosine", cosine(w, d, steps), **common)
            for fraction in (0.1, 0.5):
                add("wsd", wsd(w, d, fraction, steps), **common, wsd_decay=fraction)
        add("inverse_sqrt", inverse_sqrt(w, steps), **common)
        add("exponential", exponential(w, 0.97, steps), **common, exponential_gamma=0.97)
    losses = [3.0, 2.5, 2.5, 2.49990, 2.4999, 2.6, 2.4, 2.41, 2.42, 2.43, 2.44, 2.45, 2.46, 2.47, 2.48, 2.39, 2.38995,
              2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5]
    for factor, patience in ((0.5, 3), (0.5, 1), (0.1, 2)):
        add("plateau", plateau(losses, factor, patience), plateau_factor=factor, plateau_patience=patience,
            evaluation_losses=losses)
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the file that is there")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*lr_scheduler.*")
    cases = make_cases()
    target = HERE / "lr_schedules.json"
    if arguments.check:
        stored = json.loads(target.read_text())["cases"]
        if stored != cases:
            raise SystemExit("lr_schedules.json differs from what this program makes")
        print("lr_schedules.json agrees")
        return
    head = json.dumps({
        "made_by": "tests/reference/lr_schedules.py", "torch": torch.__version__,
        "transformers": transformers.__version__,
        "lr": "of update t = 1, 2, …; for plateau after each of evaluation_losses",
    }, indent=1, ensure_ascii=False)
    lines = ",\n  ".join(json.dumps(case) for case in cases)
    target.write_text(f'{head[:-2]},\n "cases": [\n  {lines}\n ]\n}}\n')
    json.loads(target.read_text())
    print(f"{len(cases)} cases, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
