"""Runs the commands that README.md and docs/ show, and checks their links: check_docs.py [--links] [FILE…]

Every fenced block marked `sh` is run with bash, as somebody who follows the page would: the blocks of a page in order,
in one shell that stops at the first failure, in a fresh folder with the built `tessera` on PATH. What the page finds
there: `build`, `configs`, `tests`, `benchmarks` and `scripts` of the project, and TESSERA_DATA where the data folder is
(the shared test data beside the project, unless TESSERA_DATA is set). A line before the fence changes that:

    <!-- not run: REASON -->    the block is not run; the reason is printed
    <!-- needs data -->         run only where TESSERA_DATA is a folder
    <!-- needs engine -->       run only where the engine is built
    <!-- fails: CODE -->        the last command of the block must exit with this code

Links: a relative target must exist, and so must the heading that its #fragment names.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE_SECONDS = 420
MARKER = re.compile(r"<!--\s*(not run|needs data|needs engine|fails)(?::\s*(.*?))?\s*-->")
FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*(\S*)")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")


def fences(text):
    """Yields (line number, language, body, markers) of each fenced block, and the prose lines beside them."""
    blocks, prose, markers = [], [], {}
    opened = None
    for number, line in enumerate(text.split("\n"), start=1):
        fence = FENCE.match(line)
        if opened is None and fence:
            opened = (number, fence[2], fence[3], [], markers)
            markers = {}
        elif opened is not None and fence and fence[2].startswith(opened[1]) and not fence[3]:
            blocks.append((opened[0], opened[2], "\n".join(opened[3]), opened[4]))
            opened = None
        elif opened is not None:
            opened[3].append(line)
        else:
            prose.append((number, line))
            found = dict((m[1], m[2] or "") for m in MARKER.finditer(line))
            if found:
                markers = {**markers, **found}
            elif line.strip():
                markers = {}
    if opened is not None:
        raise ValueError(f"line {opened[0]}: the block is never closed")
    return blocks, prose


def slug(heading):
    """The fragment by which a heading is linked, as GitHub makes it."""
    heading = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", lambda m: m[1] or "", heading)
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def headings(path):
    return {slug(line.lstrip("#")) for _, line in fences(path.read_text())[1] if re.match(r"#{1,6} ", line)}


def check_links(page, prose):
    problems = []
    for number, line in prose:
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, fragment = target.partition("#")
            path = (page.parent / name) if name else page
            if not path.exists():
                problems.append(f"{page.relative_to(ROOT)}:{number}: links to {name}, which is not there")
            elif fragment and path.suffix == ".md" and fragment not in headings(path):
                problems.append(f"{page.relative_to(ROOT)}:{number}: {name or 'this page'} has no heading #{fragment}")
    return problems


def runnable(block, environment, notes, where):
    """Whether to run a block; says why not."""
    _, _, _, markers = block
    if "not run" in markers:
        if not markers["not run"]:
            raise ValueError(f"{where}: 'not run' gives no reason")
        notes.append(f"{where}: not run: {markers['not run']}")
    elif "needs data" in markers and not os.path.isdir(environment.get("TESSERA_DATA", "")):
        notes.append(f"{where}: not run: TESSERA_DATA is no folder")
    elif "needs engine" in markers and not (ROOT / "build/libtessera_engine.so").exists():
        notes.append(f"{where}: not run: the engine is not built")
    else:
        return True
    return False


def run_page(page, blocks, environment, notes):
    """Returns the number of blocks that ran, and a problem or None."""
    name = page.relative_to(ROOT)
    script, count = ["set -euo pipefail"], 0
    for block in blocks:
        number, _, body, markers = block
        where = f"{name}:{number}"
        if not runnable(block, environment, notes, where):
            continue
        count += 1
        script.append(f"echo '=== {where}' >&2")
        if "fails" in markers:
            script.append(f"code=0; (\n{body}\n) || code=$?\n[ $code = {markers['fails']} ] || "
                          f"{{ echo 'exit code '$code', not {markers['fails']}' >&2; exit 1; }}")
        else:
            script.append(body)
    if count == 0:
        return 0, None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-docs-"))
    try:
        for shown in ("build", "configs", "tests", "benchmarks", "scripts", "docs"):
            (folder / shown).symlink_to(ROOT / shown)
        process = subprocess.Popen(["bash", "-c", "\n".join(script)], cwd=folder, env=environment, text=True,
                                   errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=PAGE_SECONDS)
            failed = f"exit code {process.returncode}" if process.returncode else None
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            failed = f"not finished after {PAGE_SECONDS} s"
        if failed is None:
            return count, None
        at = re.findall(r"^=== (.*)$", output, re.M)
        tail = "\n".join("    " + line for line in output.strip().split("\n")[-25:])
        return count, f"{at[-1] if at else name}: {failed}; its last output:\n{tail}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    arguments = sys.argv[1:]
    links_only = "--links" in arguments
    named = [pathlib.Path(a).resolve() for a in arguments if not a.startswith("--")]
    pages = named or [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md",
                      *sorted((ROOT / "docs").glob("*.md"))]
    problems, notes, count = [], [], 0
    with tempfile.TemporaryDirectory(prefix="tessera-docs-cache-") as cache:
        environment = {**os.environ, "PATH": f"{ROOT / 'build'}:{os.environ['PATH']}", "NO_COLOR": "1",
                       "TESSERA_CACHE": cache}
        environment.setdefault("TESSERA_DATA", str(ROOT.parent / "shared" / "data"))
        for page in pages:
            try:
                blocks, prose = fences(page.read_text())
                problems += check_links(page, prose)
                for number, language, _, _ in blocks:
                    if language in ("bash", "shell", "console", "zsh"):
                        problems.append(f"{page.relative_to(ROOT)}:{number}: write ```sh, so that the block is run")
                if links_only:
                    continue
                started = time.monotonic()
                ran, problem = run_page(page, [b for b in blocks if b[1] == "sh"], environment, notes)
            except ValueError as error:
                problems.append(f"{page.relative_to(ROOT)}: {error}")
                continue
            count += ran
            if problem:
                problems.append(problem)
            if ran:
                print(f"{page.relative_to(ROOT)}: {ran} blocks, {time.monotonic() - started:.0f} s"
                      f"{' FAILED' if problem else ''}", flush=True)
    print("\n".join(notes + problems))
    print(f"{len(pages)} pages, {count} blocks ran, {len(notes)} not run, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
