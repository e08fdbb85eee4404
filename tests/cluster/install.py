"""What `make install` makes, moved elsewhere and started where the project's folder cannot be seen."""

import os
import pathlib
import shutil
import subprocess

from cluster import ROOT, TESSERA, Background, Skip, expect

BUILD = TESSERA.parent


def hidden(words, *folders):
    """The words, run where those folders are empty."""
    mounts = "".join(f"mount -t tmpfs none '{folder}' && " for folder in folders)
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{mounts}exec "$@"', "hidden", *map(str, words)]


def installed_program(bench):
    if os.geteuid() != 0:
        raise Skip("a mount namespace needs root")
    possible = subprocess.run(hidden(["true"]), capture_output=True, text=True)
    if possible.returncode != 0:
        raise Skip(f"mount namespaces cannot be made here ({possible.stderr.strip()})")
    first, moved = bench.folder / "installed", bench.folder / "moved here"
    make = Background(bench.folder, ["cmake", "--install", BUILD, "--prefix", first],
                      env={**os.environ, "TORCH_LIBS": "copy"}).wait(120)
    expect(make.code == 0, make.describe())
    size = sum(p.stat().st_size for p in first.rglob("*") if p.is_file() and not p.is_symlink()) / 1e6
    shutil.move(first, moved)
    env = {"PATH": os.environ["PATH"], "HOME": str(bench.folder), "TESSERA_CACHE": str(bench.folder / "cache")}
    program = moved / "bin" / "tessera"
    # Everything that was built with: the project, its torch wherever it is, and the libraries that are not of the base
    # system (under other names, so that only the copies can be found).
    folders = [ROOT]
    torch = subprocess.run(["sed", "-n", "s/^TESSERA_TORCH_DIR:[A-Z]*=//p", BUILD / "CMakeCache.txt"],
                           capture_output=True, text=True, check=True).stdout.strip()
    if not pathlib.Path(torch).resolve().is_relative_to(ROOT):
        folders.append(torch)
    expect(subprocess.run(hidden(["test", "-e", ROOT / "build"], *folders), cwd="/").returncode == 1, "it is not hidden")
    train = Background(bench.folder, hidden([program, "train", "quickstart", "train.max_steps=2", "run.name=installed"],
                                            *folders), env=env).wait(120)
    expect(train.code == 0, train.describe())
    doctor = Background(bench.folder, hidden([program, "doctor"], *folders), env=env).wait(60)
    expect(doctor.code == 0 and f"{moved}/lib/torch" in doctor.out, doctor.describe())
    loaded = subprocess.run(hidden(["ldd", program], *folders), capture_output=True, text=True, cwd="/").stdout
    for name in ("libyaml", "libxxhash"):
        expect(f"{name}" in loaded and str(moved) in loaded, f"{name} is not taken from the installed folder:\n{loaded}")
    linked = bench.folder / "linked"
    make = Background(bench.folder, ["cmake", "--install", BUILD, "--prefix", linked],
                      env={**os.environ, "TORCH_LIBS": "link"}).wait(120)
    expect(make.code == 0 and (linked / "lib" / "torch").is_symlink(), make.describe())
    doctor = Background(bench.folder, [linked / "bin" / "tessera", "doctor"], env=env).wait(60)
    expect(doctor.code == 0, doctor.describe())
    shutil.rmtree(moved)
    return f"{size:.0f} MB; trains and is healthy elsewhere"


CASES = [installed_program]
