"""From samples to one number per run: the run is the unit of replication."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rcatools.errors import InputError


def run_values(samples: pd.DataFrame) -> pd.DataFrame:
    """One row per run: the median of log time, back on the time scale.

    The exponential of the median logarithm differs from the median only for an even count, where it is the
    geometric mean of the two middle samples.

    Args:
        samples: columns ``arm``, ``block``, ``run``, ``value`` (positive); further columns are ignored.

    Returns:
        Columns arm, block, run, value, samples (count), sd_log (within the run, NaN for one sample), sorted
        by arm, block, run.

    Raises:
        InputError: a column is missing, or a value is not a positive finite number.
    """
    missing = {"arm", "block", "run", "value"} - set(samples.columns)
    if missing:
        raise InputError(f"samples lack the columns {sorted(missing)}; give arm, block, run and value")
    values = samples["value"].to_numpy(dtype=float)
    if not np.all(np.isfinite(values) & (values > 0)):
        bad = int(np.sum(~(np.isfinite(values) & (values > 0))))
        raise InputError(f"{bad} samples are not positive finite times; leave them out and count them")
    frame = samples[["arm", "block", "run"]].assign(log=np.log(values))
    groups = frame.groupby(["arm", "block", "run"], sort=True, observed=True, dropna=False)["log"]
    table = groups.agg(["median", "size", "std"]).reset_index()
    return pd.DataFrame(
        {
            "arm": table["arm"],
            "block": table["block"],
            "run": table["run"],
            "value": np.exp(table["median"]),
            "samples": table["size"].astype(int),
            "sd_log": table["std"],
        }
    )
