"""Which file declares a name, and which files may use it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from attrs import define, field

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.places import Places
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.sources import place_beside


@define(eq=False, repr=False)
class Visibility:
    """`owners`: the file of each declared name. `elsewhere`: names of packs that are not loaded, with their pack."""

    places: Places
    elsewhere: Callable[[], dict[str, str]]
    owners: dict[str, str] = field(factory=dict[str, str])
    used: dict[str, set[str]] = field(factory=dict[str, set[str]])

    def sees(self, file: str, name: str) -> bool:
        """May a file use a name? Its own, those of the vocabulary, and those that it asks for by `use`."""
        owner = self.owners.get(name)
        return owner is None or owner == file or is_vocabulary(owner) or name in self.used.get(file, ())

    def need(self, file: str, name: str, span: syntax.Span) -> None:
        """RW205 where a file uses a name of another pack without `use`."""
        if not self.sees(file, name):
            pack = pack_of(self.owners[name])
            path = _path_from(file, self.owners[name])
            raise Problem("RW205", f"`{name}` is of the pack {pack}", span, f"write `use {path} ({name})` above")

    def read_use(self, use: syntax.Use, files: Collection[str]) -> None:
        """Note what a `use` item makes visible. `files`: the paths of all of them."""
        pack = use.path.split(".")[-1]
        near = str(place_beside(use.path, use.span.file))
        file = near if near in files else next((f for f in files if pack_of(f) == pack), None)
        if file is None:
            return  # said where files are looked for
        there = {n for n, owner in self.owners.items() if owner == file}
        for name in use.names:
            if name not in there:
                place = self.places.word(use.span, name)
                hint = closest(name, there) or "its names: " + ", ".join(sorted(there)[:6])
                raise Problem("RW205", f"{pack} has no `{name}`", place, hint)
        self.used.setdefault(use.span.file, set()).update(use.names or there)

    def packs(self) -> set[str]:
        """The packs that are known: those of the files, and those whose names are."""
        return {pack_of(f) for f in self.places.sources} | set(self.elsewhere().values())

    def hint(self, name: str, known: Iterable[str]) -> str:
        """What to write for an unknown op."""
        close = closest(name, known)
        if close and name not in self.elsewhere():
            return close
        pack = self.elsewhere().get(name)
        return (
            f"write `use {pack} ({name})` above"
            if pack
            else "declare it: `op`, `fusion` or `def`; a torch op has a dotted name"
        )


def pack_of(file: str) -> str:
    """The name that a file has as a pack."""
    return file.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".rw")


def _path_from(file: str, owner: str) -> str:
    """How a file names another: by the folders between them where it lies below, a shipped pack by its name."""
    if owner.startswith("patterns/"):
        return pack_of(owner)
    folder = file.replace("\\", "/").rpartition("/")[0]
    below = owner.replace("\\", "/").removesuffix(".rw").removeprefix(folder + "/" if folder else "")
    return below.replace("/", ".") if below.replace("/", "").isidentifier() else pack_of(owner)


def is_vocabulary(file: str) -> bool:
    """Is it a file whose names every file sees, and whose fusions only declare?"""
    return file.startswith("patterns/vocab/")
