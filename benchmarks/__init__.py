"""What fxrewrite costs, beside what Inductor does for the same work: `python -m benchmarks [NAME ...] [--json]`.

Each benchmark is a module with `run(settings)`, which returns tables. Things that are compared are measured in one run,
one after the other and again, so that whatever else the machine does falls on all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
for _folder in ("tests", "examples"):  # the models and the capture are those of the tests
    if str(ROOT / _folder) not in sys.path:
        sys.path.append(str(ROOT / _folder))
