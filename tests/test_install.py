"""The built wheel, installed into an empty environment, is a whole fxrewrite: commands, packs, backend."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("fxrewrite", "kernels", "patterns", "pyproject.toml", "setup.py", "MANIFEST.in", "LICENSE")
OPTIONAL_SOURCES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "Makefile", "constraints.txt")

ONE_LINE = "silu_and_mul(x) |> quant_fp8 => fused_silu_quant(x)\n"
ONE_COMPILE = """
import fxrewrite, torch

def norm_and_quant(x, w):
    wide = x.float()
    norm = w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
    scale = (norm.abs().amax(-1, keepdim=True).float() / 448).clamp(min=1e-12)
    return (norm.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale

arguments = torch.randn(4, 64, dtype=torch.bfloat16), torch.randn(64, dtype=torch.bfloat16)
with fxrewrite.record() as log:
    codes, scale = torch.compile(norm_and_quant, backend="fxrewrite")(*arguments)
expected_codes, expected_scale = norm_and_quant(*arguments)
torch.testing.assert_close(scale, expected_scale, rtol=1e-2, atol=0)
torch.testing.assert_close(codes.float() * scale, expected_codes.float() * expected_scale, rtol=0.15, atol=1e-2)
print(log.report())
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command as a user of the empty environment would, and return its output; a failure shows all of it."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} failed with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel built from an sdist that is built from a copy of the sources (a build leaves traces in its folder)."""
    copy = tmp_path / "sources"
    copy.mkdir()
    for name in (*SOURCES, *OPTIONAL_SOURCES):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists() or name in SOURCES:
            shutil.copy(source, copy / name)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", copy, cwd=tmp_path)
    (built,) = (tmp_path / "dist").glob("*.whl")
    return built


@pytest.fixture
def environment(wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """The `bin` folder of a new virtual environment that holds the wheel and what it depends on, nothing else."""
    folder = tmp_path / "venv"
    run(sys.executable, "-m", "venv", folder, cwd=tmp_path)
    for wanted in ("torch", wheel):  # torch first: see the Makefile
        run(folder / "bin/python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wanted, cwd=tmp_path)
    yield folder / "bin"
    shutil.rmtree(folder)  # 1 GB, which pytest would keep after a failure


def files_under(folder: Path, *suffixes: str) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in suffixes}


@pytest.mark.slow
def test_the_wheel_is_whole(environment: Path, tmp_path: Path) -> None:
    where = "import fxrewrite, os; print(os.path.dirname(os.path.dirname(fxrewrite.__file__)))"
    site = Path(run(environment / "python", "-c", where, cwd=tmp_path).strip())
    assert not site.is_relative_to(ROOT)
    for installed, source in (("fxrewrite", "fxrewrite"), ("fxrewrite_kernels", "kernels")):
        assert files_under(site / installed, ".py", ".lark", ".json") == files_under(
            ROOT / source, ".py", ".lark", ".json"
        )
    assert files_under(site / "fxrewrite_patterns", ".rw") == files_under(ROOT / "patterns", ".rw") != set()
    assert (site / "fxrewrite" / "py.typed").exists()

    (tmp_path / "one_line.rw").write_text(ONE_LINE)
    run(environment / "fxrewrite", "check", "one_line.rw", cwd=tmp_path)
    packs = run(environment / "fxrewrite", "packs", cwd=tmp_path)
    assert all(path.stem in packs for path in (ROOT / "patterns").glob("*.rw"))
    assert "rms_norm_fp8" in run(environment / "python", "-c", ONE_COMPILE, cwd=tmp_path)
