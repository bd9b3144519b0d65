"""Write the schemas that `fxrewrite check` knows without torch: `python tools/snapshot_schemas.py`.

Those of torch are read from the torch that is installed, those of vLLM from `vllm_schemas.txt`. A change of the files
in `fxrewrite/dsl/schemas/` is reviewed like code.
"""

from __future__ import annotations

import json
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import torch

from fxrewrite.dsl.schemas.schema import parse
from fxrewrite.dsl.schemas.snapshot import FOLDER

COMPLETE = ("aten", "prims", "_c10d_functional", "symm_mem")
REGISTER = (
    "torch._prims",
    "torch._inductor.inductor_prims",
    "torch.distributed._functional_collectives",
    "torch.distributed._symmetric_memory",
)
VLLM = Path(__file__).parent / "vllm_schemas.txt"


def of_torch() -> dict[str, list[str]]:
    """Every schema of the complete namespaces, by namespace, without it."""
    for module in REGISTER:
        import_module(module)
    found: dict[str, list[str]] = {name: [] for name in COMPLETE}
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, rest = str(schema).partition("::")
        if namespace in found:
            found[namespace].append(rest)
    return found


def of_vllm(text: str) -> dict[str, dict[str, list[str]]]:
    """Namespace -> source -> schemas, from text with `@ source` lines."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    source = ""
    for line in filter(None, text.splitlines()):
        if line.startswith("@"):
            source = line[1:].strip()
        elif not line.startswith("#"):
            namespace, _, rest = parse(line).text.partition("::")
            found[namespace][source].append(rest)
    return found


def write(namespace: str, source: str, complete: bool, schemas: list[str]) -> None:
    """One file of the snapshot, a schema a line."""
    stored = {"source": source, "complete": complete, "schemas": sorted(set(schemas))}
    (FOLDER / f"{namespace}.json").write_text(json.dumps(stored, indent=0) + "\n", encoding="utf-8")


def main() -> None:
    """Write every file."""
    for namespace, schemas in of_torch().items():
        write(namespace, f"torch {torch.__version__.partition('+')[0]}", True, schemas)
    for namespace, sources in of_vllm(VLLM.read_text(encoding="utf-8")).items():
        write(namespace, "; ".join(sources), False, [s for schemas in sources.values() for s in schemas])


if __name__ == "__main__":
    main()
