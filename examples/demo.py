"""The whole of fxrewrite on real models: `make demo`.

Tiny random Hugging Face models with FP8 linears are compiled with the rules off and on, each in a fresh compilation.
Shown are the number of sites where each rule fires beside the number that the model's layers demand, the reason at
every other site, the distance of the logits to a float32 run, and the seconds that each stage took.

Two processes work at a time where there are two cores. `run` returns a JSON object and prints as it goes.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Empty
from typing import Any

from attrs import field, frozen

from fxrewrite.patterns.events import Log

LAYERS, HIDDEN = 2, 64
SEQUENCES, TOKENS = 8, 64  # distances are over all sequences: one alone says little
LIMIT = 1.1  # of the distance to float32: packs on against packs off
ONE_LINE = "silu_and_mul(x) |> quant_fp8 => fused_silu_quant(x)\n"
ONE_LINE_RULE = "fused_silu_quant"  # a rule without a name is called after what it emits
TWO = "silu_and_mul needs `slice` where a reshape of `aten._scaled_mm`"  # gate and up are two tensors, no halves of one
KEPT = "kept: no faster provider here"
PROCESSES = 2
STAGES = {"parse": "parse", "compile": "rules", "read": "values", "match": "match", "rewrite": "rewrite"}


@frozen
class Case:
    """One row of the demo.

    `kind` and `quant` make the model. `packs`: the text of a rule file, None for the shipped ones. `providers` None:
    the defaults. `expected`: rule -> sites that fire; no other rule may, but for the clean-up. `why`: reason -> sites
    that do not fire for it. `says`: what the report must hold. `off`: also compile with everything off, and compare
    distances to a float32 run. `cached`: compile twice with Inductor's caches on.
    """

    title: str
    kind: str
    quant: str
    expected: Mapping[str, int]
    packs: str | None = None
    providers: tuple[str, ...] | None = ("op",)
    why: Mapping[str, int] = field(factory=dict)
    says: str = ""
    off: bool = False
    cached: bool = False


@frozen
class Outcome:
    """What a case gave: seconds of the first call, and rms distances of the logits to a float32 run."""

    log: Log
    seconds: float
    seconds_off: float | None = None
    distance: float | None = None
    distance_off: float | None = None
    warm: Log | None = None
    seconds_warm: float | None = None


def per_token(activation: str) -> dict[str, int]:
    """Sites of a per-token model: two norms and an activation a layer; no residual comes before the first norm."""
    return {"rms_norm_fp8": 1, "add_rms_norm_fp8": 2 * LAYERS - 1, activation: LAYERS}


def cases() -> list[Case]:
    """Everything that the demo runs, the longest first."""
    static = {"rms_norm_fp8_static": 1, "add_rms_norm_fp8_static": 2 * LAYERS - 1, "silu_mul_fp8_static": LAYERS}
    return [
        Case("Llama, per token", "llama", "token", per_token("silu_mul_fp8"), off=True),
        Case("Qwen3, per token", "qwen3", "token", per_token("silu_mul_fp8"), off=True),
        Case("Phi-3, per token", "phi3", "token", per_token(ONE_LINE_RULE), off=True),
        Case("Gemma 3, per token", "gemma3", "token", per_token("gelu_mul_fp8"), off=True),
        Case("Llama, static", "llama", "static", static, cached=True),
        Case("Llama, defaults", "llama", "token", {}, providers=None, why={KEPT: 3 * LAYERS}),
        Case("Phi-3, one line", "phi3", "token", {ONE_LINE_RULE: LAYERS}, packs=ONE_LINE),
        Case("Llama, one line", "llama", "token", {}, packs=ONE_LINE, why={"other op": 4 * LAYERS}, says=TWO),
    ]


# ---- one case, in a process of its own


def quiet() -> None:
    """Silence what libraries say about parts of themselves that this demo does not use."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    for name in ("torchao", "torch.utils._pytree", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)


def work(case: Case, say: Callable[[str], None]) -> Outcome:
    """Compile and run the model of a case. `say` is told what is done next."""
    quiet()
    say("importing torch and transformers")
    import fp8_linear
    import models

    model = fp8_linear.quantize(models.make(case.kind, LAYERS, HIDDEN), case.quant)
    sequences = [models.inputs(model, batch=1, tokens=TOKENS, seed=seed) for seed in range(SEQUENCES)]
    with ExitStack() as stack:
        settings = {"packs": stack.enter_context(_pack(case.packs)), "providers": case.providers}
        if case.cached:
            stack.enter_context(_empty_caches())
            say("compiling, with Inductor's caches on and empty")
            _, seconds, log = compiled(model, sequences, settings)
            say("compiling again, the caches warm")
            _, seconds_warm, warm = compiled(model, sequences, settings)
            return Outcome(log, seconds, warm=warm, seconds_warm=seconds_warm)
        stack.enter_context(_no_caches())
        say("compiling, rules on")
        logits, seconds, log = compiled(model, sequences, settings)
        if not case.off:
            return Outcome(log, seconds)
        say("compiling, rules off")
        logits_off, seconds_off, _ = compiled(model, sequences, {"level": "O0"})
    say("running in float32")
    reference = logits_of(models.float32_copy(model), sequences)
    distance, distance_off = (float((x - reference).square().mean().sqrt()) for x in (logits, logits_off))
    return Outcome(log, seconds, seconds_off, distance, distance_off)


def compiled(model: Any, sequences: list[Any], settings: Mapping[str, Any]) -> tuple[Any, float, Log]:
    """The logits of a compiled model, f32[SEQUENCES, TOKENS, vocabulary]; the seconds of the first call; the log."""
    import torch

    import fxrewrite

    torch.set_num_threads(1)
    torch._dynamo.reset()
    with fxrewrite.record() as log:
        run_compiled = torch.compile(model, backend=fxrewrite.backend(**settings), dynamic=True, fullgraph=True)
        start = time.perf_counter()
        logits_of(run_compiled, sequences[:1])
        seconds = time.perf_counter() - start
        return logits_of(run_compiled, sequences), seconds, log


def logits_of(model: Any, sequences: list[Any]) -> Any:
    """The logits of sequences, one by one, widened to float32."""
    import torch

    with torch.no_grad():
        return torch.cat([model(*args).float() for args in sequences])


@contextmanager
def _pack(text: str | None) -> Iterator[str | None]:
    """The path of a rule file with this text; None for None."""
    if text is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one_line.rw"
        path.write_text(text)
        yield str(path)


@contextmanager
def _no_caches() -> Iterator[None]:
    """Switch off what could answer for the compiler, so that a second run of the demo shows what the first one did."""
    from torch._dynamo import config as dynamo
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor

    with (
        inductor.patch(fx_graph_cache=False, fx_graph_remote_cache=False),
        functorch.patch(enable_autograd_cache=False, enable_remote_autograd_cache=False),
        dynamo.patch(automatic_dynamic_local_pgo=False, automatic_dynamic_remote_pgo=False),
    ):
        yield


@contextmanager
def _empty_caches() -> Iterator[None]:
    """Caches that hold nothing yet: a tag in their keys that nobody used."""
    from torch.compiler import config

    with config.patch(cache_key_tag=uuid.uuid4().hex):  # type: ignore[attr-defined]
        yield


# ---- all cases


_messages: Any = None  # the queue of this process to the one that prints


def _connect(queue: Any) -> None:
    global _messages
    _messages = queue


class Failed(Exception):
    """A case raised: its error as text, for not every exception can travel between processes."""


def _work(number: int, case: Case) -> Outcome:
    try:
        return work(case, lambda text: _messages.put((number, text)))
    except Exception as error:
        raise Failed("".join(traceback.format_exception(error))) from error


def run_cases(chosen: list[Case], say: Callable[[Case, str], None]) -> list[Outcome]:
    """Run cases in `PROCESSES` processes (one, where there is one core); `say` is told what each does next."""
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    count = min(PROCESSES, len(chosen), os.cpu_count() or 1)
    with ProcessPoolExecutor(count, context, _connect, (queue,)) as pool:
        futures: list[Future[Outcome]] = [pool.submit(_work, i, case) for i, case in enumerate(chosen)]
        done: set[int] = set()
        while len(done) < len(futures):
            for i, future in enumerate(futures):
                if future.done() and i not in done:
                    done.add(i)
                    _drain(queue, chosen, say)
                    say(chosen[i], "done" if future.exception() is None else "failed")
            _drain(queue, chosen, say, 0.2)
        return [f.result() for f in futures]


def _drain(queue: Any, chosen: list[Case], say: Callable[[Case, str], None], timeout: float = 0.0) -> None:
    try:
        while True:
            number, text = queue.get(timeout=timeout) if timeout else queue.get_nowait()
            say(chosen[number], text)
            timeout = 0.0
    except Empty:
        return


# ---- what must hold


CLEAN_UP = "noop"  # its rules fire as graphs have them


def fired(log: Log) -> Counter[str]:
    """How often each rule fired, those of the clean-up left out."""
    return Counter(e.rule for e in log.events if e.fired and e.pack != CLEAN_UP)


def sites(log: Log, reason: str) -> int:
    """At how many sites some rule did not fire for this reason."""
    return len({e.site for e in log.missed() if e.reason == reason})


def problems(case: Case, outcome: Outcome) -> list[str]:
    """Where an outcome is not what it must be; empty if all is right."""
    found = fired(outcome.log)
    out = [
        f"{rule}: {found[rule]} sites, expected {case.expected.get(rule, 0)}"
        for rule in sorted({*found, *case.expected})
        if found[rule] != case.expected.get(rule, 0)
    ]
    for reason, want in case.why.items():
        have = sites(outcome.log, reason)
        if have != want:
            out.append(f"{reason}: {have} sites, expected {want}")
    if case.says not in outcome.log.report():
        out.append(f"the report does not say: {case.says}")
    if outcome.distance is not None and outcome.distance_off is not None:
        ratio = outcome.distance / outcome.distance_off
        if not ratio <= LIMIT:
            out.append(f"distance to float32: {ratio:.3f} x that with the rules off, at most {LIMIT} is right")
    if outcome.warm is not None and (not outcome.warm.cached or outcome.warm.events):
        out.append("the second compilation was not answered by Inductor's cache, or the log does not say so")
    return out


def summary(case: Case, outcome: Outcome) -> dict[str, Any]:
    """A JSON object of one case."""
    return {
        "title": case.title,
        "model": case.kind,
        "quant": case.quant,
        "expected": dict(case.expected),
        "fired": dict(fired(outcome.log)),
        "reasons": {reason: sites(outcome.log, reason) for reason in case.why},
        "distance": outcome.distance,
        "distance_off": outcome.distance_off,
        "seconds": {
            **{stage: outcome.log.seconds[stage] for stage in STAGES},
            "compile": outcome.seconds,
            "compile_off": outcome.seconds_off,
            "compile_warm": outcome.seconds_warm,
        },
        "cached": outcome.warm.cached if outcome.warm is not None else None,
        "problems": problems(case, outcome),
        "log": outcome.log.to_json(),
    }


# ---- what is shown


def run(as_json: bool = False, chosen: list[Case] | None = None) -> int:
    """Run the demo, print progress and reports (or one JSON object), and return 0, or 1 where anything differs."""
    from rich.console import Console

    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    start = time.perf_counter()
    picked = cases() if chosen is None else chosen
    console.print(
        f"{len(picked)} models of {LAYERS} layers, {HIDDEN} features, random weights; a minute or three", markup=False
    )

    def say(case: Case, text: str) -> None:
        console.print(f"{time.perf_counter() - start:5.0f} s  {case.title}: {text}", markup=False)

    outcomes = run_cases(picked, say)
    wrong = {c.title: p for c, o in zip(picked, outcomes) if (p := problems(c, o))}
    seconds = time.perf_counter() - start
    if as_json:
        rows = [summary(c, o) for c, o in zip(picked, outcomes)]
        print(json.dumps({"ok": not wrong, "seconds": seconds, "cases": rows}, indent=2))
        return int(bool(wrong))
    for case, outcome in zip(picked, outcomes):
        _show_report(console, case, outcome)
    _show_tables(console, picked, outcomes)
    for title, lines in wrong.items():
        for line in lines:
            console.print(f"WRONG  {title}: {line}", style="bold red", markup=False)
    console.print(
        f"{'all as expected' if not wrong else 'not as expected'}, {seconds:.0f} s", style="bold", markup=False
    )
    return int(bool(wrong))


def _show_report(console: Any, case: Case, outcome: Outcome) -> None:
    console.print()
    console.rule(case.title, align="left")
    if case.packs is not None:
        console.print(f"one_line.rw:  {case.packs}", markup=False)
    console.print(outcome.log.report(), markup=False)
    if outcome.warm is not None:
        console.print(f"\ncompiled again with warm caches: {outcome.warm.report()}", markup=False)


def _show_tables(console: Any, picked: list[Case], outcomes: list[Outcome]) -> None:
    counts = _table("Sites", "", "expected", "found")
    distance = _table(f"Distance to float32, at most {LIMIT} x", "", "off", "on", "on / off")
    seconds = _table("Seconds: ours, and the whole first call", "", *STAGES.values(), "on", "off", "warm")
    for case, o in zip(picked, outcomes):
        found = fired(o.log)
        counts.add_row(case.title, "", "", style="bold")
        for rule in dict.fromkeys([*case.expected, *found]):
            counts.add_row(f"  {rule}", str(case.expected.get(rule, 0)), str(found[rule]))
        if not case.expected and not found:
            counts.add_row("  any rule", "0", "0")
        for reason, want in case.why.items():
            counts.add_row(f"  not: {reason}", str(want), str(sites(o.log, reason)))
        if o.distance is not None and o.distance_off is not None:
            row = (f"{o.distance_off:.5f}", f"{o.distance:.5f}", f"{o.distance / o.distance_off:.3f}")
            distance.add_row(case.title, *row)
        whole = ["" if s is None else f"{s:.1f}" for s in (o.seconds, o.seconds_off, o.seconds_warm)]
        seconds.add_row(case.title, *(f"{o.log.seconds[stage]:.3f}" for stage in STAGES), *whole)
    for table in (counts, distance, seconds):
        console.print()
        console.print(table)
    console.print()


def _table(title: str, *columns: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", show_edge=False, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=True)
    return table


if __name__ == "__main__":
    sys.exit(run("--json" in sys.argv[1:]))
