"""A plugin of pytest: `.rw` files are test files, one test a subject and check.

    pytest patterns/                                  # all that can be tried here
    pytest patterns/ -k rms_norm_fp8 --fxrewrite-profile ci

What could not be tried is a skipped test with its reason; `--fxrewrite-strict` makes it a failure.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fxrewrite.verify.profiles import PROFILES

if TYPE_CHECKING:
    from fxrewrite.verify.findings import Finding
    from fxrewrite.verify.kept import Kept
    from fxrewrite.verify.runner import Check


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, in a group of their own."""
    group = parser.getgroup("fxrewrite", "verification of .rw files")
    group.addoption("--fxrewrite-profile", choices=list(PROFILES), default="quick", help="how much is tried (quick)")
    group.addoption("--fxrewrite-seed", type=int, default=0, help="of all inputs (0)")
    group.addoption("--fxrewrite-device", default="cpu", metavar="DEVICE", help="where what is under test runs (cpu)")
    group.addoption(
        "--fxrewrite-import", action="append", default=[], metavar="MODULE", help="imported first: it registers ops"
    )
    group.addoption("--fxrewrite-strict", action="store_true", help="what cannot be tried fails")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A `.rw` file is a file of tests."""
    return RuleFile.from_parent(parent, path=file_path) if file_path.suffix == ".rw" else None


class RuleFile(pytest.File):
    """The checks of one `.rw` file."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item a check; a file that `check` refuses fails with its diagnostics."""
        from fxrewrite.dsl.diagnostics import RuleError
        from fxrewrite.verify.device import NoDevice
        from fxrewrite.verify.runner import Plan, make_checks

        option = self.config.option
        plan = Plan(
            (str(self.path),), option.fxrewrite_profile, option.fxrewrite_seed, device=option.fxrewrite_device,
            modules=tuple(option.fxrewrite_import), kept=tuple(_earlier()),
        )  # fmt: skip
        try:
            checks = make_checks(plan)
        except RuleError as error:
            raise self.CollectError(str(error)) from None
        except NoDevice as error:
            raise self.CollectError(error.rendered()) from None
        for check in checks.listed:
            yield RuleItem.from_parent(self, name=check.name, check=check, sources=checks.program.sources)


def _earlier() -> list[Kept]:
    """The failures of earlier runs, in the folder that pytest was called in."""
    from fxrewrite.verify.kept import load

    found, damaged = load()
    for line in damaged:
        warnings.warn(pytest.PytestWarning(line), stacklevel=1)
    return found


class Refused(Exception):
    """A check failed; the text is the finding as `fxrewrite verify` writes it."""


class RuleItem(pytest.Item):
    """One check."""

    def __init__(self, *, check: Check, sources: dict[str, str], **kwargs: Any):
        super().__init__(**kwargs)
        self.check, self.sources = check, sources

    def runtest(self) -> None:
        """Run the check; a failure raises, what cannot be tried is skipped."""
        from fxrewrite.verify.kept import keep
        from fxrewrite.verify.report import failure_text
        from fxrewrite.verify.runner import finding

        found = finding(self.check)
        keep(found)
        self._tell(found)
        strict = self.config.option.fxrewrite_strict
        if found.outcome == "failed" or (strict and found.outcome == "not run"):
            raise Refused(failure_text(found, self.sources))
        if found.outcome == "not run":
            pytest.skip(found.reason)

    def _tell(self, found: Finding) -> None:
        """What JUnit files carry."""
        self.user_properties += [("outcome", found.outcome), ("cases", found.cases)]
        self.user_properties += [(name, f"{c.one}/{c.two}/{c.more}") for name, c in found.counts]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The finding alone: a traceback through the verifier helps nobody."""
        if isinstance(excinfo.value, Refused):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the rule stands."""
        span = self.check.span
        return self.path, None if span is None else span.line - 1, self.name
