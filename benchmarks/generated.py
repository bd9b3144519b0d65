"""Generated kernels on a GPU: `python -m benchmarks.generated check|times|host --out FILE.json`.

`check` holds every kernel of the shipped norm and activation packs against its definition, op by op. `times` measures
them beside a kernel that only loads and stores the same bytes, Inductor's code for the definition, and the two ops.
`host` measures what a call costs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.kernels_check import check
from benchmarks.kernels_host import host
from benchmarks.kernels_times import times


def main() -> int:
    """Run one part; the exit code is 1 where a kernel is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generated", description=__doc__)
    parser.add_argument("part", choices=["check", "times", "host"])
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--seconds", type=float, help="times: as long as that, and without Inductor's code")
    given_ = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a GPU")
    if given_.part == "times" and given_.seconds:
        return times(given_.out, given_.seconds)
    return int({"check": check, "times": times, "host": host}[given_.part](given_.out) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
