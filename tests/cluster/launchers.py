"""The same training by every launcher, over two hosts or on one: equal losses and weights."""

import os
import shutil

from cluster import ROOT, TESSERA, Background, Skip, events, expect, expect_same_training, on

STEPS = 20


def environment(bench, **more):
    env = {**os.environ, "TESSERA_CACHE": str(bench.folder / "cache"), "NO_COLOR": "1", **more}
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"):
        env.pop(name, None)
    return env


def train_words(name, *more):
    return ["train", "tiny.yaml", f"run.name={name}", *more]


def finish(bench, words, name, world_size, seconds=60, steps=STEPS):
    ended = Background(bench.folder, words, env=environment(bench)).wait(seconds)
    expect(ended.code == 0, ended.describe())
    run = bench.folder / "runs" / name
    expect(events(run, "start") and list(events(run, "start").values())[-1]["world_size"] == world_size,
           f"the run had not {world_size} ranks: {ended.describe()}")
    return expect_same_training(run, bench.reference, steps)


def one_process(bench):
    """The reference; the other cases are nothing without it."""
    ended = Background(bench.folder, [TESSERA, *train_words("reference")], env=environment(bench)).wait(90)
    expect(ended.code == 0, ended.describe())
    expect(len(events(bench.reference, "step")) == STEPS, "steps are missing")
    first, last = events(bench.reference, "step")[1]["loss"], events(bench.reference, "step")[STEPS]["loss"]
    expect(last < first - 0.5, f"nothing was learnt: {first} to {last}")
    return f"loss {first:.3f} to {last:.3f}"


def nproc(bench):
    return finish(bench, [TESSERA, *train_words("nproc"), "--nproc", "2"], "nproc", 2)


def launch(bench):
    return finish(bench, [TESSERA, "launch", "--standalone", "--nproc-per-node", "2", "--", *train_words("launch")],
                  "launch", 2)


def torchrun(bench):
    program = ROOT / ".venv" / "bin" / "torchrun"
    if not program.exists():
        raise Skip(f"there is no {program.relative_to(ROOT)} (TORCH_PYTHON is in use)")
    return finish(bench, [program, "--no-python", "--standalone", "--nproc-per-node", "2", TESSERA,
                          *train_words("torchrun")], "torchrun", 2, seconds=90)


def mpirun(bench):
    if shutil.which("mpirun") is None:
        raise Skip("there is no mpirun (package openmpi-bin)")
    return finish(bench, ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2", TESSERA,
                          *train_words("mpirun")], "mpirun", 2)


def srun(bench):
    return finish(bench, on("c0", "srun", "-N2", "-n2", TESSERA, *train_words("srun")), "srun", 2)


def srun_four_ranks(bench):
    return finish(bench, on("c0", "srun", "-N2", "--ntasks-per-node=2", TESSERA, *train_words("srun4")), "srun4", 4)


def srun_launch(bench):
    return finish(bench, on("c0", "srun", "-N2", "--ntasks-per-node=1", TESSERA, "launch", "--nproc-per-node", "1", "--",
                            *train_words("srun_launch")), "srun_launch", 2)


def sbatch_words(script, name, *more, options=()):
    """Submits an example as its user does, with the program by an absolute path."""
    return on("c0", "env", f"TESSERA={TESSERA}", "sbatch", "--wait", "--parsable", "--output=job-%j.log", *options,
              ROOT / "examples" / "slurm" / script, *train_words(name, *more)[1:])


def job_log(bench, ended):
    log = bench.folder / f"job-{ended.out.split()[0]}.log" if ended.out.strip() else None
    return log.read_text(errors="replace") if log and log.exists() else "(no log)"


def sbatch(bench, script="train.sbatch", name="sbatch"):
    ended = Background(bench.folder, sbatch_words(script, name, options=["--time=5"]), env=environment(bench)).wait(90)
    expect(ended.code == 0, ended.describe() + "\n" + job_log(bench, ended))
    return expect_same_training(bench.folder / "runs" / name, bench.reference, STEPS)


def sbatch_launch(bench):
    return sbatch(bench, "launch.sbatch", "sbatch_launch")


CASES = [one_process, nproc, launch, torchrun, mpirun, srun, srun_four_ranks, srun_launch, sbatch, sbatch_launch]
