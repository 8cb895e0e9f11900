"""Brings rates to times, so that every ratio means the same: above one is slower."""

from __future__ import annotations

import pandas as pd


def time_like(frame: pd.DataFrame, higher: dict[str | None, bool]) -> pd.DataFrame:
    """Invert the values of metrics where more is better; relative spreads stay what they are.

    Args:
        frame: column ``value`` and, in summaries, ``sd``, ``low``, ``high``; ``metric`` where there are several.
        higher: by metric name (None for the only one): whether more is better.

    Returns:
        The frame with 1 / value in those rows; sd becomes sd / value**2, the range changes sides.
    """
    if not any(higher.values()):
        return frame
    if "metric" in frame.columns:
        rate = frame["metric"].astype(str).map(lambda m: higher.get(m, higher.get(None, False))).astype(bool)
    else:
        rate = pd.Series(higher.get(None, False), index=frame.index)
    out, value = frame.copy(), frame["value"].astype(float)
    out["value"] = (1.0 / value).where(rate, value)
    if "sd" in frame.columns:
        out["sd"] = (frame["sd"] / value**2).where(rate, frame["sd"])
    if "within_sd" in frame.columns:
        out["within_sd"] = (frame["within_sd"] / value**2).where(rate, frame["within_sd"])
    if "low" in frame.columns and "high" in frame.columns:
        out["low"] = (1.0 / frame["high"]).where(rate, frame["low"])
        out["high"] = (1.0 / frame["low"]).where(rate, frame["high"])
    return out
