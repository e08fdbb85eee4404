"""What goes wrong on clusters: time limits, lost links, killed ranks, folders that are not shared, strangers on the ports."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

from cluster import (ADDRESSES, SCRIPT, TESSERA, Background, Failure, checkpoints, events, expect, expect_same_training,
                     listening_ports, newest_step, on, ranks_on, wait_until)
from launchers import STEPS, environment, job_log, sbatch_words, train_words

# Long enough to be in the middle of when something happens; ended by the case.
ENDLESS = ["train.max_steps=1000000", "train.eval_every=0", "checkpoint.every=0"]
QUICK_TO_NOTICE = ["parallel.heartbeat_timeout=5", "parallel.timeout=8"]
ENDS_WITHIN = 15


def start(bench, words, run_name):
    """Starts a training and waits until it is in the middle of it."""
    job = Background(bench.folder, words, env=environment(bench))
    run = bench.folder / "runs" / run_name

    def training():
        if not job.running():
            raise Failure("it ended before it trained: " + job.ended(job.process.returncode).describe())
        return newest_step(run) >= 5

    try:
        wait_until(f"{run_name} trains", training, 60)
    except Failure:
        job.kill()
        raise
    return job, run


def srun_words(name, *more):
    """Each rank's streams in files of its own, written on its host: what srun relays is lost with a link."""
    return on("c0", "srun", "-N2", "-n2", f"--output={name}.%t.out", f"--error={name}.%t.err", TESSERA,
              *train_words(name, *more))


def last_line(bench, name, rank):
    path = bench.folder / f"{name}.{rank}.err"
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()] if path.exists() else []
    return lines[-1] if lines else ""


def ranks_now():
    """The processes of the two ranks. (Rank 0's store is another: it lives on for a while, to tell others why.)"""
    return [ranks_on("n1")[0], ranks_on("n2")[1]]


def all_ended(ranks, since):
    for rank, pid in enumerate(ranks):
        wait_until(f"rank {rank} ends", lambda: not pathlib.Path(f"/proc/{pid}/exe").exists(),
                   ENDS_WITHIN - (time.monotonic() - since))
    return time.monotonic() - since


def scancel_all():
    subprocess.run(on("c0", "scancel", "--quiet", "--signal=KILL", "--full", "--user=root"), capture_output=True, timeout=20)
    subprocess.run(on("c0", "scancel", "--quiet", "--user=root"), capture_output=True, timeout=20)


def nodes_idle():
    wait_until("the nodes are idle", lambda: subprocess.run(
        on("c0", "sinfo", "--noheader", "--format", "%T %D"), capture_output=True, text=True).stdout.strip() == "idle 2", 60)


def time_limit(bench):
    """Slurm's signal before the limit: saved, queued again, resumed, finished. The shortest limit is a minute."""
    config = (bench.folder / "tiny.yaml").read_text()
    (bench.folder / "limited.yaml").write_text(config.replace("max_steps: 20", "max_steps: 1000000"))
    words = [word.replace("tiny.yaml", "limited.yaml") if isinstance(word, str) else word
             for word in sbatch_words("train.sbatch", "limited", "train.eval_every=0", "checkpoint.every=0",
                                      "log.every=50", options=["--time=1", "--signal=B:USR1@50"])]
    job = Background(bench.folder, words, env=environment(bench))
    run = bench.folder / "runs" / "limited"
    try:
        wait_until("the job saves at the signal", lambda: checkpoints(run), 75)
        wait_until("the ranks end", lambda: not ranks_on("n1") and not ranks_on("n2"), 20)
        saved = int(checkpoints(run)[-1].removeprefix("step_"))
        # The rest shall be short: the total may be lowered when a run is resumed.
        (bench.folder / "limited.yaml").write_text(config.replace("max_steps: 20", f"max_steps: {saved + 100}"))
        ended = job.wait(75)
    finally:
        if job.running():
            job.kill()
            scancel_all()
    log = job_log(bench, ended)
    expect(ended.code == 0, ended.describe() + "\n" + log)
    starts = (run / "metrics.jsonl").read_text().splitlines()
    resumed = [json.loads(line)["resumed_from_step"] for line in starts if '"event":"start"' in line.replace(" ", "")]
    expect(resumed == [None, saved], f"resumed from {resumed}, saved {saved}\n{log}")
    expect(checkpoints(run)[-1] == f"step_{saved + 100:08}", f"{checkpoints(run)}\n{log}")
    restarts = subprocess.run(on("c0", "scontrol", "show", "job", ended.out.split()[0]), capture_output=True, text=True).stdout
    expect(re.search(r"Restarts=1\b", restarts), restarts)
    return f"saved and resumed at step {saved}"


def save_and_go_on(bench):
    """SIGUSR1 by scancel: a checkpoint, and the training goes on; SIGTERM then: another one, and it ends."""
    job, run = start(bench, srun_words("usr1", *ENDLESS), "usr1")
    try:
        step_id = subprocess.run(on("c0", "squeue", "--steps", "--noheader", "--format=%i"), capture_output=True, text=True,
                                 check=True).stdout.split()[0]
        subprocess.run(on("c0", "scancel", "--signal=USR1", step_id), check=True, timeout=20)
        wait_until("a checkpoint after SIGUSR1", lambda: checkpoints(run), 20)
        saved = int(checkpoints(run)[-1].removeprefix("step_"))
        wait_until("training goes on", lambda: newest_step(run) > saved + 5, 20)
        subprocess.run(on("c0", "scancel", "--signal=TERM", step_id), check=True, timeout=20)
        ended = job.wait(30)
    finally:
        job.kill()
    expect(ended.code == 143, ended.describe() + "\n" + last_line(bench, "usr1", 0))
    end = list(events(run, "end").values())[-1]
    expect(end["status"] == "interrupted", str(end))
    expect(checkpoints(run)[-1] == f"step_{end['step']:08}", f"{checkpoints(run)}, ended at {end['step']}")
    return f"checkpoints {', '.join(checkpoints(run))}"


def stop_and_kill(bench):
    """Slurm ends all ranks when the first one exits with a code, as a stopped one does. Rank 0 still saves: with a model
    whose checkpoint takes longer than the others' way out."""
    size = ["model.n_layer=8", "model.n_embd=512"]
    job = Background(bench.folder, on("c0", "srun", "-N2", "-n2", "--kill-on-bad-exit=1", TESSERA,
                                      *train_words("stopped", *ENDLESS, *size)), env=environment(bench))
    run = bench.folder / "runs" / "stopped"
    try:
        wait_until("it trains", lambda: newest_step(run) >= 2 or not job.running(), 60)
        subprocess.run(on("c0", "scancel", "--signal=TERM", "--user=root"), check=True, timeout=20)
        ended = job.wait(40)
    finally:
        job.kill()
        scancel_all()
    expect(ended.code == 143 and "not saved" not in ended.err, ended.describe())
    ends = list(events(run, "end").values())
    expect(ends and ends[-1]["status"] == "interrupted", f"no end is recorded: {ended.describe()}")
    expect(checkpoints(run) == [f"step_{ends[-1]['step']:08}"], f"{checkpoints(run)}: {ended.describe()}")
    return f"saved step {ends[-1]['step']}"


def link_down(bench):
    job, _ = start(bench, srun_words("link", *ENDLESS, *QUICK_TO_NOTICE), "link")
    try:
        ranks, since = ranks_now(), time.monotonic()
        subprocess.run([SCRIPT, "link", "n2", "down"], check=True, timeout=20)
        seconds = all_ended(ranks, since)
    finally:
        subprocess.run([SCRIPT, "link", "n2", "up"], check=True, timeout=20)
        job.kill()
        scancel_all()
    line = last_line(bench, "link", 0)
    expect(line.startswith("error: ") and "rank 1" in line, f"rank 0's last line: {line}")
    other = last_line(bench, "link", 1)
    expect(other.startswith("error: "), f"rank 1's last line: {other}")
    nodes_idle()
    return f"{seconds:.1f} s: {line[:110]}"


def killed_rank(bench):
    job, _ = start(bench, srun_words("killed", *ENDLESS, *QUICK_TO_NOTICE), "killed")
    try:
        ranks, since = ranks_now(), time.monotonic()
        os.kill(ranks[1], signal.SIGKILL)
        seconds = all_ended(ranks, since)
        ended = job.wait(20)
    finally:
        job.kill()
        scancel_all()
    expect(ended.code != 0, ended.describe())
    line = last_line(bench, "killed", 0)
    expect(line.startswith("error: ") and "rank 1" in line, f"rank 0's last line: {line}")
    return f"{seconds:.1f} s: {line[:110]}"


def unshared_folder(bench):
    folder = bench.folder / "runs" / "unshared"
    folder.mkdir(parents=True)
    subprocess.run(on("n2", "mount", "-t", "tmpfs", "none", folder), check=True)
    try:
        ended = Background(bench.folder, on("c0", "srun", "-N2", "-n2", TESSERA, *train_words("unshared")),
                           env=environment(bench)).wait(60)
    finally:
        subprocess.run(on("n2", "umount", folder), check=True)
    expect(ended.code == 4, ended.describe())
    expect(re.search(r"^error: .*\bn2\b", ended.err, re.M), "the host is not named: " + ended.describe())
    expect(not events(folder, "step"), "it trained")
    return ended.last_error[:120]


def doctor(bench):
    def run(*more):
        return Background(bench.folder, on("c0", "srun", "-N2", "--ntasks-per-node=2", TESSERA, "doctor", "--cluster", *more),
                          env=environment(bench)).wait(60)

    ended = run()
    expect(ended.code == 0 and "These nodes can train together" in ended.out, ended.describe())
    for part in ("n1", "n2", *ADDRESSES.values(), "eth0"):
        expect(part in ended.out, f"no {part}: {ended.describe()}")
    report = json.loads(run("--json").out)
    expect([node["ranks"] for node in report["reports"]] == [2, 2], str(report))
    folder = bench.folder / "private"
    folder.mkdir()
    subprocess.run(on("n2", "mount", "-t", "tmpfs", "none", folder), check=True)
    try:
        ended = run("--folder", folder)
    finally:
        subprocess.run(on("n2", "umount", folder), check=True)
    expect(ended.code == 4 and "n2 does not see" in ended.out, ended.describe())
    expect(not list(folder.iterdir()), "marks are left behind")
    subprocess.run([SCRIPT, "link", "n2", "down"], check=True)
    try:
        words = on("n1", "env", "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=n1",
                   "MASTER_PORT=29777", TESSERA, "doctor", "--cluster", "--timeout", "3")
        ended = Background(bench.folder, words, env=environment(bench)).wait(30)
    finally:
        subprocess.run([SCRIPT, "link", "n2", "up"], check=True)
    expect(ended.code == 5 and "rank 1 did not report" in ended.out, ended.describe())
    nodes_idle()
    return "fine, not shared, not reached"


# --- strangers --------------------------------------------------------------------------------------------------------


def garbage(address):
    with socket.create_connection(address, timeout=2) as s:
        s.sendall(os.urandom(70000))


def http(address):
    with socket.create_connection(address, timeout=2) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: store\r\n\r\n")
        s.settimeout(0.2)
        try:
            s.recv(100)
        except OSError:
            pass


def scan(host):
    for port in range(1024, 65536):
        s = socket.socket()
        s.settimeout(0.2)
        try:
            s.connect_ex((host, port))
        finally:
            s.close()


def attack(ports):
    """Run by a host of the cluster: `python3 faults.py ADDRESS:PORT…`, for as long as it lives."""
    held = []
    addresses = [(a, int(p)) for a, p in (text.rsplit(":", 1) for text in ports)]
    scans = [threading.Thread(target=scan, args=(host,), daemon=True) for host in {a for a, _ in addresses}]
    for thread in scans:
        thread.start()
    rounds = 0
    while True:
        for address in addresses:
            for way in (garbage, http):
                try:
                    way(address)
                except OSError:
                    pass  # it hung up on us, as it should
            if len(held) < 200:
                try:
                    held.append(socket.create_connection(address, timeout=2))  # half-open, to the end
                except OSError:
                    pass
        rounds += 1
        print(f"rounds {rounds} held {len(held)} scanning {sum(t.is_alive() for t in scans)}", flush=True)
        time.sleep(0.05)


def strangers(bench):
    """Garbage, HTTP, half-open connections and scans on every port of a running job, from a third host."""
    size = ["model.n_layer=4", "model.n_embd=192", "train.max_steps=20"]
    undisturbed = Background(bench.folder, [TESSERA, *train_words("calm", *size)], env=environment(bench)).wait(90)
    expect(undisturbed.code == 0, undisturbed.describe())
    job = Background(bench.folder, on("c0", "srun", "-N2", "-n2", TESSERA, *train_words("attacked", *size)),
                     env=environment(bench))
    run = bench.folder / "runs" / "attacked"
    attacker = None
    try:
        wait_until("the job trains", lambda: newest_step(run) >= 2 or not job.running(), 60, step=0.02)
        ports = listening_ports("n1") | listening_ports("n2")
        local = {port for port in ports if port[0].startswith("127.") or port[0] == "::1"}
        open_to_all = {port for port in ports if port[0] in ("0.0.0.0", "*", "::")}
        targets = {f"{address}:{port}" for address, port in ports - local - open_to_all}
        for host, address in ADDRESSES.items():
            targets |= {f"{address}:{port}" for a, port in open_to_all & listening_ports(host)}
        job_id = subprocess.run(on("c0", "squeue", "--noheader", "--states=running", "--format=%i"), capture_output=True,
                                text=True, check=True).stdout.split()[0]
        store = 20000 + 97 * int(job_id) % 12768  # of the job's step 0
        expect(f"{ADDRESSES['n1']}:{store}" in targets, f"the store's port {store} is not among {sorted(targets)}")
        attacker = Background(bench.folder, on("c0", "python3", __file__, *sorted(targets)))
        first = newest_step(run)
        ended = job.wait(90)
        during = newest_step(run) - first
    finally:
        job.kill()
        if attacker:
            attacker.kill()
    expect(ended.code == 0, ended.describe())
    text = attacker.ended(0).out.splitlines()
    expect(text and during > 0, f"the job ended too soon: {during} steps under attack; {attacker.ended(0).describe()}")
    equal = expect_same_training(run, bench.folder / "runs" / "calm", STEPS)
    wildcard = f"; open to all interfaces: {len(open_to_all)}" if open_to_all else ""
    return f"{' '.join(sorted(targets))}: {during} steps under attack, {text[-1]}; {equal}{wildcard}"


CASES = [doctor, unshared_folder, save_and_go_on, stop_and_kill, killed_rank, link_down, strangers, time_limit]

if __name__ == "__main__":
    import sys

    attack(sys.argv[1:])
