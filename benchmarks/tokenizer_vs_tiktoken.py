"""Times `tessera tokenizer encode` against tiktoken on one thread, alternately, in one run.

Usage: python benchmarks/tokenizer_vs_tiktoken.py [--program build/tessera] [--gpt2 DIR] [--text FILE[.gz]]
       [--rounds N] [--minimum-ratio R]

Needs the package tiktoken. Its encoding is built from the same encoder.json and vocab.bpe, so nothing is downloaded.
Both sides are timed without reading the text and without loading the vocabulary; each Tessera round is a fresh process
with an empty cache of words, tiktoken stays warm. The ids are compared once. Prints one JSON line; exit code 1 if the
ids differ or the ratio of the medians is below --minimum-ratio.
"""
import argparse
import gzip
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import tiktoken

PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def load_tiktoken(folder):
    """GPT-2's ranks: the 256 bytes in the order of its vocabulary, then the merges in the order of the file."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable}
    byte_of |= {chr(256 + i): byte for i, byte in enumerate(rest)}
    tokens = [bytes([byte]) for byte in printable + rest]
    lines = (folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:]
    for line in lines:
        if line:
            tokens.append(bytes(byte_of[c] for c in line.replace(" ", "")))
    ids = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
    ranks = {token: rank for rank, token in enumerate(tokens)}
    for text, rank in ids.items():
        assert text == "<|endoftext|>" or ranks[bytes(byte_of[c] for c in text)] == rank
    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks,
                             special_tokens={"<|endoftext|>": ids["<|endoftext|>"]})


def run_tessera(program, folder, file):
    done = subprocess.run(
        [program, "tokenizer", "encode", folder, "--file", file, "--threads", "1", "--timing", "--json"],
        capture_output=True, text=True, check=True)
    seconds = float(re.search(r" in ([0-9.]+) s ", done.stderr).group(1))
    return seconds, done.stdout


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    shared = root.parent / "shared" / "data"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=root / "build" / "tessera")
    parser.add_argument("--gpt2", type=pathlib.Path, default=shared / "gpt2")
    parser.add_argument("--text", type=pathlib.Path, default=shared / "wikitext2" / "wiki.train.tokens.gz")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minimum-ratio", type=float, default=1.0)
    arguments = parser.parse_args()

    data = arguments.text.read_bytes()
    if arguments.text.suffix == ".gz":
        data = gzip.decompress(data)
    text = data.decode("utf-8")
    peer = load_tiktoken(arguments.gpt2)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "text"
        file.write_bytes(data)
        for round_number in range(arguments.rounds):
            seconds, output = run_tessera(arguments.program, arguments.gpt2, file)
            ours.append(seconds)
            start = time.perf_counter()
            ids = peer.encode_ordinary(text)
            theirs.append(time.perf_counter() - start)
            if round_number == 0 and json.loads(output)["ids"] != ids:
                sys.exit("the ids differ")
    our_median, their_median = statistics.median(ours), statistics.median(theirs)
    ratio = their_median / our_median
    print(json.dumps({
        "bytes": len(data), "tokens": len(ids), "rounds": arguments.rounds,
        "tessera_seconds": round(our_median, 4), "tiktoken_seconds": round(their_median, 4),
        "tessera_mb_per_second": round(len(data) / our_median / 1e6, 1),
        "tiktoken_mb_per_second": round(len(data) / their_median / 1e6, 1),
        "tiktoken_version": tiktoken.__version__, "ratio": round(ratio, 2)}))
    if ratio < arguments.minimum_ratio:
        sys.exit(f"the ratio {ratio:.2f} is below {arguments.minimum_ratio}")


if __name__ == "__main__":
    main()
