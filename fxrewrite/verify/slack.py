"""By how much a right kernel may differ from the exact primitive."""

from __future__ import annotations

from attrs import frozen


@frozen
class Slack:
    """In ulps of f32 unless said otherwise, on top of the hull of the exact result and its rounding.

    `exp_argument`: ulps for each unit of |x|, since exp may be 2^(x * log2 e) with a rounded product. `lanes`: a sum of
    more than 64 terms has at least so many partial sums; 1 for a kernel that declares one accumulator. `off_centre`:
    the share of elements that may differ from the centre where more than `several` of them have several values.
    `exact_sums`: is a sum exact where every order of adding is? Not the mean that Welford's algorithm updates.
    """

    fdiv: float = 2.0
    exp: float = 4.0
    exp_argument: float = 1.5
    exp2: float = 2.0
    log: float = 4.0
    log2: float = 2.0
    rsqrt: float = 4.0
    tanh: float = 4.0
    erf: float = 4.0
    lanes: int = 8
    several: float = 0.05
    off_centre: float = 0.02
    exact_sums: bool = True

    def terms(self, n: int) -> float:
        """c(n): a sum of n terms may be wrong by c(n) * 2^-24 * sum|terms|."""
        if n <= 1:
            return 0.0
        return float(n) if self.lanes == 1 else min(float(n), n / self.lanes + 56)


DEFAULT = Slack()
