"""Group-sequential bounds: how strong a difference must be at each planned look.

Bounds hold the two-sided error over all looks at ``alpha``. They are solved from the joint normal distribution
of the z-statistics, whose correlation between looks i < j is sqrt(t_i / t_j) (Jennison and Turnbull 2000, ch. 2).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import optimize, stats

Kind = Literal["pocock", "obrien-fleming"]


@dataclass(frozen=True)
class Bounds:
    """What each look demands.

    Attributes:
        kind: "pocock" (the same bound at each look) or "obrien-fleming" (strict early, plain at the end).
        fractions: share of the final blocks seen at each look.
        z: |z| to pass at each look.
        p: the nominal two-sided p-value to fall below at each look.
        alpha: error over all looks.
    """

    kind: str
    fractions: tuple[float, ...]
    z: tuple[float, ...]
    p: tuple[float, ...]
    alpha: float


def bounds(looks: int | Sequence[float], kind: Kind = "pocock", alpha: float = 0.05) -> Bounds:
    """Solve the bounds for a number of equally spaced looks, or for looks at given block counts.

    Args:
        looks: number of looks, or increasing block counts (or shares) of the looks.
        kind: "pocock" or "obrien-fleming".
        alpha: two-sided error over all looks.

    Raises:
        ValueError: no looks, looks that do not increase, or an unknown kind.
    """
    counts = [float(k) for k in (range(1, looks + 1) if isinstance(looks, int) else looks)]
    if not counts or counts[0] <= 0 or any(b <= a for a, b in itertools.pairwise(counts)):
        raise ValueError(f"looks must be positive and increasing, got {looks}")
    if kind not in ("pocock", "obrien-fleming"):
        raise ValueError(f"kind must be 'pocock' or 'obrien-fleming', got {kind!r}")
    fractions = tuple(count / counts[-1] for count in counts)
    constant = _solve(fractions, kind, alpha)
    z = tuple(float(v) for v in constant * _shape(fractions, kind))
    return Bounds(kind, fractions, z, tuple(float(2 * stats.norm.sf(v)) for v in z), alpha)


def _shape(fractions: Sequence[float], kind: str) -> np.ndarray:
    return np.ones(len(fractions)) if kind == "pocock" else 1.0 / np.sqrt(np.asarray(fractions))


@lru_cache(maxsize=128)
def _solve(fractions: tuple[float, ...], kind: str, alpha: float) -> float:
    shape = _shape(fractions, kind)
    single = float(stats.norm.isf(alpha / 2))
    if len(fractions) == 1:
        return single
    t = np.asarray(fractions)
    correlation = np.sqrt(np.minimum.outer(t, t) / np.maximum.outer(t, t))

    def excess(constant: float) -> float:
        limit = constant * shape
        inside = stats.multivariate_normal.cdf(
            limit,
            mean=np.zeros(t.size),
            cov=correlation,
            lower_limit=-limit,
            abseps=1e-5,
            releps=1e-5,
            maxpts=20_000 * t.size,
            rng=np.random.default_rng(1),
        )
        return float(1.0 - inside - alpha)

    return float(optimize.brentq(excess, single * 0.99, single * 3.0, xtol=1e-4))
