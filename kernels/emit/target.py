"""What runs the source."""

from __future__ import annotations

from attrs import frozen


@frozen
class Target:
    """`interpreted`: Triton's interpreter, which has no libdevice and casts wrongly. `approximate`: functions of one
    16-bit value may take approximate instructions, because they were proved on all values.
    """

    interpreted: bool = False
    approximate: bool = True


DEVICE = Target()
EXACT = Target(approximate=False)
INTERPRETER = Target(interpreted=True, approximate=False)
