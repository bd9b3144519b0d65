"""Hold the table of `docs/holes.md` against the tests of `tests/holes`: `python tools/check_holes.py [ROOT]`.

Prints a line for each row without a test, test without a row, row that names another file than its test stands in,
number left out, and test that is skipped; exits with 1 where there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE, TESTS = "docs/holes.md", "tests/holes"
ROW = re.compile(r"\| ([A-Z]\d+) \|.*\| \[test_([A-Z]\d+)\]\(\.\./(\S+)\) \|")
TEST = re.compile(r"test_([A-Z]\d+)")


def rows(root: Path) -> dict[str, tuple[str, str]]:
    """Row -> the row whose test it names, and the file."""
    lines = (root / PAGE).read_text().splitlines()
    return {m[1]: (m[2], m[3]) for m in map(ROW.fullmatch, lines) if m}


def tests(root: Path) -> dict[str, tuple[str, ast.FunctionDef]]:
    """Row -> the file and the function of its test."""
    out: dict[str, tuple[str, ast.FunctionDef]] = {}
    for path in sorted((root / TESTS).glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and (m := TEST.fullmatch(node.name)):
                out[m[1]] = (path.relative_to(root).as_posix(), node)
    return out


def problems(root: Path) -> Iterator[str]:
    """What does not agree, a line each."""
    named, found = rows(root), tests(root)
    for line in (root / PAGE).read_text().splitlines():
        if re.match(r"\| [A-Z]\d+ ", line) and not ROW.fullmatch(line):
            yield f"{PAGE}: this row does not name its test: {line[:60]}"
    for row in sorted(named.keys() - found.keys()):
        yield f"{PAGE}: {row} has no test; write `test_{row}` in {TESTS}"
    for row in sorted(found.keys() - named.keys()):
        yield f"{found[row][0]}: test_{row} has no row; write it in {PAGE}"
    for row in sorted(named.keys() & found.keys()):
        file, function = found[row]
        if named[row] != (row, file):
            yield f"{PAGE}: {row} names test_{named[row][0]} in {named[row][1]}; it is test_{row} in {file}"
        if any(word in ast.unparse(d) for d in function.decorator_list for word in ("skip", "xfail")):
            yield f"{file}: test_{row} is not run"
    for letter in sorted({row[0] for row in named}):
        numbers = {int(row[1:]) for row in named if row[0] == letter}
        for gap in sorted(set(range(1, max(numbers))) - numbers):
            yield f"{PAGE}: {letter}{gap} is left out"


def main() -> int:
    """Print the problems; 1 where there is one."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    found = list(problems(root))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
