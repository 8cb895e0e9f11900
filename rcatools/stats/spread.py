"""Do the two arms spread alike?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rcatools import units
from rcatools.stats.decide import Note
from rcatools.stats.records import Reason
from rcatools.stats.ttest import standard_deviation

MIN_SD_RATIO = 3.0
ALPHA = 0.05


def unequal_spread(b: NDArray[np.float64], c: NDArray[np.float64]) -> Note | None:
    """A note when the log spreads differ at least threefold and the F-test of variances rejects equality.

    It forbids nothing: pairs and Welch's test do not assume equal spread.
    """
    if min(b.size, c.size) < 3:
        return None
    sd_b, sd_c = standard_deviation(b), standard_deviation(c)
    small, large = sorted((sd_b, sd_c))
    if large < MIN_SD_RATIO * small or large < 1e-9:
        return None
    n_large, n_small = (b.size, c.size) if sd_b > sd_c else (c.size, b.size)
    if small > 0 and 2 * special.fdtrc(n_large - 1, n_small - 1, (large / small) ** 2) > ALPHA:
        return None
    return Note(
        Reason.UNEQUAL_SPREAD,
        f"the arms spread unequally: baseline {units.percent(_range(b))}, "
        f"candidate {units.percent(_range(c))} from lowest to highest run",
        blocks=False,
    )


def _range(logs: NDArray[np.float64]) -> float:
    return float(np.expm1(np.ptp(logs)))
