"""Sums up GoogleTest's XML results of a folder: test_summary.py FOLDER CTEST_STATUS

Prints skipped cases by reason and, last, "N passed, N failed, N skipped"; exits with 1 if anything failed, a test
program died without results included.
"""

import collections
import pathlib
import sys
import xml.etree.ElementTree


def main() -> int:
    folder, ctest_status = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    passed, failed, skipped = 0, [], collections.defaultdict(list)
    for file in sorted(folder.glob("*.xml")):
        for case in xml.etree.ElementTree.parse(file).iter("testcase"):
            name = f'{case.get("classname")}.{case.get("name")}'
            reason = case.find("skipped")
            if case.find("failure") is not None:
                failed.append(f"{file.stem}: {name}")
            elif reason is not None:
                skipped[reason.get("message", "").strip().split("\n")[-1] or "no reason given"].append(name)
            else:
                passed += 1
    for reason, names in sorted(skipped.items()):
        print(f"skipped {len(names)} ({names[0]}{' …' if len(names) > 1 else ''}): {reason}")
    for name in failed:
        print(f"failed {name}")
    count = len(failed)
    if ctest_status and not failed:
        print("failed: a test program ended without results (see ctest's list above)")
        count = 1
    print(f"{passed} passed, {count} failed, {sum(map(len, skipped.values()))} skipped", flush=True)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
