"""`fxrewrite check --emit inductor`: the file of plain patterns, what stands in it, and that it replaces."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from torch._inductor import config as inductor_config

from capture import make_fx_graph, run
from fxrewrite.cli import cli
from fxrewrite.lowering import library
from fxrewrite.lowering.config import load_program, make_config
from fxrewrite.lowering.plain import emit
from fxrewrite.lowering.plain.choices import Choose, Dead, Ways
from fxrewrite.lowering.plain.layout import call, line, listed
from fxrewrite.lowering.plain.sizes import named
from graph_checks import assert_same, targets
from inductor_holes import norm_quant, rows, rules, sample
from plain_sites import loaded

ROOT = Path(__file__).parents[1]
SMALL = """
pack small level O1
fusion scaled_sum(x: f32[*B, D], y: f32[*B, D], w: f32[D]; a: float) = (x + y) * w * a
  impl mine  plain_test.scaled(w, x, y, a)   when D % 4 == 0
fusion largest(x: f32[*B, D]) = x - m, m where m = amax(x, -1, keepdim=true)
fusion product_of_halves(x: f32[*B, 2*D]) = x[..., :D] * x[..., D:]
fusion group_max_of(x: f32[T, D]; G: int) = amax(reshape(x, [T, D//G, G]), -1) requires D % G == 0
fusion squared_norm(x: lowp[*B, D]) = to(sum(f32(x) * f32(x), -1), x.dtype)
"""
EACH = "fusion scaled_each(x: f32[*B, D], *s: f32[*B, D]) = *q where n = exp(x), each q = n * s\n"


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(cli, ["check", *args], prog_name="fxrewrite")


@pytest.fixture(scope="module")
def small() -> str:
    """The file of `SMALL`."""
    program = load_program(make_config([rules(SMALL)]))
    library.register(program)
    return emit(program, program.rules, ["small"]).text


# ---- the command


def test_the_command_writes_a_file_and_says_what_is_in_it(check: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "small.rw").write_text(SMALL + EACH)
    result = check("small.rw", "--emit", "inductor", "--out", "small.py")
    assert result.exit_code == 0, result.output
    first, *rest = result.output.splitlines()
    assert first.startswith("small.py: 5 rules in ") and first.endswith(" plain patterns")
    assert "not said by plain patterns:" in rest
    assert rest[-1] == "  small.rw:9:1: small.scaled_each: `each`: a list of any length"
    text = (tmp_path / "small.py").read_text()
    assert "    small.scaled_each: `each`: a list of any length\n" in (ast.get_docstring(ast.parse(text), False) or "")
    assert "\n# ---- small.largest (small.rw:5:1): 1 pattern\n" in text


def test_without_out_the_file_is_standard_output(check: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "small.rw").write_text(SMALL)
    result = check("small.rw", "--emit", "inductor")
    assert result.exit_code == 0
    ast.parse(result.stdout)
    assert result.stderr.startswith("5 rules in ")


def test_a_file_with_errors_is_not_emitted(check: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "wrong.rw").write_text("fusion f(x) = nothing_of_this_name(x)\n")
    result = check("wrong.rw", "--emit", "inductor", "--out", "wrong.py")
    assert result.exit_code == 1
    assert "RW205" in result.output
    assert not (tmp_path / "wrong.py").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--provider", "mine"], "add --emit inductor"),
        (["--emit", "inductor", "--provider", "mind"], "did you mean `mine`?"),
        (["--out", "a.py"], "add --emit inductor"),
        (["--emit", "inductor", "--json"], "leave --format out"),
        (["--emit", "triton"], "'triton' is not 'inductor'"),
        (["--emit", "inductor", "--out", "no/such/folder.py"], "cannot be written"),
    ],
)
def test_misuse(check: Callable[..., Result], tmp_path: Path, args: list[str], said: str) -> None:
    (tmp_path / "small.rw").write_text(SMALL)
    result = check("small.rw", *args)
    assert result.exit_code == 2
    assert said in result.output


def test_check_imports_no_torch_unless_it_emits() -> None:
    code = "import sys; from fxrewrite.cli import cli; cli(['check'], standalone_mode=False)"
    code = f"try:\n    {code.replace('; ', chr(10) + '    ')}\nfinally:\n    assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)


# ---- the file


def test_the_file_is_formatted_needs_torch_only_and_is_always_the_same(small: str, tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(small)
    for width in ("88", "120"):
        ruff = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", "--line-length", width, "small.py"]
        subprocess.run(ruff, check=True, cwd=tmp_path, capture_output=True)
    imports = [n for n in ast.walk(ast.parse(small)) if isinstance(n, ast.Import | ast.ImportFrom)]
    modules = {(n.module or "") if isinstance(n, ast.ImportFrom) else n.names[0].name for n in imports}
    assert {m.split(".")[0] for m in modules} == {"torch", "functools", "collections", "dataclasses", "typing"}
    program = load_program(make_config([rules(SMALL)]))
    assert emit(program, program.rules, ["small"]).text == small


def test_a_bound_on_patterns_leaves_the_unusual_out() -> None:
    program = load_program(make_config(["norm_quant"]))
    (rule,) = program.rules_called("norm_quant.rms_norm_int8")
    few, more = (emit(program, [rule], ["norm_quant"], most).rules[0] for most in (4, 8))
    assert (few.count, more.count) == (4, 8)
    assert few.cut == more.cut + 4
    usual = [f.given["late"] for f in few.families]
    assert not any(usual)


def test_what_no_pattern_says_has_its_reason() -> None:
    program = load_program(make_config(["norm_quant"]))
    reasons = {
        "rms_norm_nvfp4": "no torch op rounds to E2M1",
        "rms_norm_fp8_static_each": "`each`: a list of any length",
        "norm_fans_out": "`keep n`: how many users it has is not known",
    }
    emitted = emit(program, [r for n in reasons for r in program.rules_called(n)], ["norm_quant"])
    assert {r.rule.name: r.why for r in emitted.rules} == reasons
    assert "RULES += []" in emitted.text


# ---- matches are replaced


def scaled_sum(x, y, w):
    return (y + x) * w * 0.5


def largest(x):
    m = x.amax(-1, keepdim=True)
    return x - m, m


def halves(x):
    return x[..., :4] * x[..., 4:]


def by_group(x):
    return x.reshape(6, 2, 4).amax(-1)


def squared_norm(x):
    wide = x.float()
    return (wide * wide).sum(-1).to(x.dtype)


X = sample(6, 8)
CASES = {
    "scaled_sum": (scaled_sum, [X, sample(6, 8, seed=1), sample(8, seed=2)]),
    "largest": (largest, [X]),
    "product_of_halves": (halves, [X]),
    "group_max_of": (by_group, [X]),
    "squared_norm": (squared_norm, [X.bfloat16()]),
}


def post_grad(fn, args):
    """A trace in which views are reshapes, as they are where Inductor calls its hook."""
    gm = make_fx_graph(fn, args)
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default
    return gm


@pytest.mark.parametrize("op", CASES)
def test_a_match_becomes_the_op(op: str, small: str) -> None:
    gm = post_grad(*CASES[op])
    before = run(gm)
    loaded(small).make_pass()(gm.graph)
    gm.graph.lint()
    gm.recompile()
    assert [t for t in targets(gm) if t.startswith("fxrewrite")] == [f"fxrewrite.{op}.default"]
    assert_same(before, run(gm))


def test_a_named_provider_is_put_in_where_it_serves() -> None:
    program = load_program(make_config([rules(SMALL)]))
    library.register(program)
    emitted = emit(program, program.rules_called("scaled_sum"), ["small"], provider="mine")
    module = loaded(emitted.text)
    with torch.library._scoped_library("plain_test", "FRAGMENT") as lib:
        lib.define("scaled(Tensor w, Tensor x, Tensor y, float a) -> Tensor")
        lib.impl("scaled", lambda w, x, y, a: (x + y) * w * a, "CompositeExplicitAutograd")
        gm = post_grad(*CASES["scaled_sum"])
        before = run(gm)
        module.make_pass()(gm.graph)
        gm.recompile()
        assert [*targets(gm)] == ["plain_test.scaled.default"]
        assert_same(before, run(gm))
        narrow = post_grad(scaled_sum, [sample(6, 6), sample(6, 6, seed=1), sample(6, seed=2)])
        module.make_pass()(narrow.graph)
        assert "plain_test.scaled.default" not in targets(narrow), "six columns are no multiple of four"


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (scaled_sum, [X, sample(6, 8, seed=1), sample(6, 8, seed=2)]),  # a weight of each row
        (scaled_sum, [X.double(), sample(6, 8).double(), sample(8).double()]),
        (lambda x: x.reshape(6, 4, 2).reshape(8, 3, 2).amax(-1), [X]),  # other groups
        (lambda x: x[..., :3] * x[..., 4:7], [X]),
        (lambda x: (x.float() * x.float()).sum(-1), [X]),  # no cast
    ],
    ids=["shape", "dtype", "sizes", "bounds", "cast"],
)
def test_what_does_not_fit_stays(fn, args, small: str) -> None:
    gm = post_grad(fn, args)
    loaded(small).make_pass()(gm.graph)
    assert not [t for t in targets(gm) if t.startswith("fxrewrite")]


def test_names_that_the_file_uses_itself_are_other_names() -> None:
    text = "fusion odd(aten: f32[*B], k: f32[*B], n0: f32[*B]; order: float) = (aten - k) * n0 - order\n"
    program = load_program(make_config([rules(text)]))
    library.register(program)
    gm = post_grad(lambda a, b, c: (a - b) * c - 0.25, [X, sample(6, 8, seed=1), sample(6, 8, seed=2)])
    before = run(gm)
    loaded(emit(program, program.rules, ["odd"]).text).make_pass()(gm.graph)
    gm.recompile()
    assert [*targets(gm)] == ["fxrewrite.odd.default"]
    assert_same(before, run(gm))


@pytest.mark.slow
def test_a_host_loads_it_into_inductor() -> None:
    program = load_program(make_config(["norm_quant"]))
    library.register(program)
    module = loaded(emit(program, program.rules_called("rms_norm_fp8"), ["norm_quant"], 8).text)
    fired = []

    def replace(rule, pattern, match, **captured):
        fired.append(rule.name)
        module.put_in(rule, pattern, match, **captured)

    host = module.make_pass()
    host.patterns = type(host.patterns)()
    module.register(host.patterns, replace)
    with torch.no_grad(), inductor_config.patch(post_grad_custom_pre_pass=host, emulate_precision_casts=True):
        codes, scales = torch.compile(norm_quant)(*rows())
    assert fired == ["norm_quant.rms_norm_fp8"]
    assert_same(list(norm_quant(*rows())), [codes, scales])


# ---- parts


def test_ways_come_by_how_far_they_are_from_the_first() -> None:
    def procedure(choose: Choose) -> str:
        text = choose("ab") + choose("xyz")
        if text == "bx":
            raise Dead("no bx")
        return text

    ways = Ways(procedure, 100)
    assert list(ways) == [(0, "ax"), (1, "ay"), (1, "az"), (2, "by"), (2, "bz")]
    assert (ways.dead, ways.left) == ("no bx", 0)


def test_sizes_are_written_in_python() -> None:
    d, g = named("D"), named("G")
    assert repr(2 * d + 1) == "2 * D + 1"
    assert repr((2 * d) // g) == "(2 * D) // G"
    assert (2 * d) // 2 == d
    assert d // g * g == d
    assert d - d == 0


def test_brackets_that_are_too_long_have_an_item_a_line() -> None:
    assert line(call("f", "a", listed("bc"))) == ["f(a, [b, c])"]
    assert line(call("f", "a" * 50, listed(["b" * 40])), "x = ", depth=1) == [
        "    x = f(",
        f"        {'a' * 50},",
        f"        [{'b' * 40}],",
        "    )",
    ]
