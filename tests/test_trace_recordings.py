"""The traces of the embedded recordings: planted arms and the arms under suspicion."""

from __future__ import annotations

from pathlib import Path

import pytest

from rcatools.trace.diff import diff
from rcatools.trace.read import load_trace

TRACES = Path(__file__).resolve().parents[1] / "data" / "recordings" / "capture-stream-h200" / "traces"
READINGS = {
    "off_again": "neither",
    "pad_untracked": "neither",
    "current": "neither",
    "plant_additive": "additive",  # three empty kernels a layer
    "plant_multiplicative": "multiplicative",  # more of the KV cache read
    "side": "additive",
    "side_gc": "additive",
    "clear_blas": "additive",
}


@pytest.mark.parametrize(("arm", "reading"), READINGS.items())
def test_measured_arms_are_read_from_their_traces(arm: str, reading: str) -> None:
    if not TRACES.is_dir():
        pytest.skip("the checkout holds no embedded recording")
    found = diff(load_trace(TRACES / "off.json.gz"), load_trace(TRACES / f"{arm}.json.gz"))
    assert found.comparable
    assert found.reading == reading
    gap = found.boundaries.us_per_boundary or 0.0
    if arm in ("side", "side_gc", "clear_blas"):
        assert 0.3 < gap < 0.4
        assert found.fit.reading == "neither"
    else:
        assert abs(gap) < 0.01
    if arm == "plant_additive":
        assert found.terms["new_us"] > 0.8 * found.total_delta_us
    if arm == "plant_multiplicative":
        first = found.kernels.iloc[0]
        assert (first["role"], first["term"]) == ("attention", "slower")
        assert first["ratio"] > 1.1
