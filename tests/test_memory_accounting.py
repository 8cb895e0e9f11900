"""Out-of-memory messages, device accounting and variant tables, with hand-computed answers."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rcatools.errors import InputError
from rcatools.memory.accounting import compare_parts, compare_variants, freed_share, split_device
from rcatools.memory.oom import is_oom_line, read_oom_line

CASES = Path(__file__).resolve().parents[1].parent / "shared" / "cases"
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="../shared/cases is not beside this checkout")
GIB, MIB = 1 << 30, 1 << 20

NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.15 GiB "
    "of which 512.00 MiB is free. Including non-PyTorch memory, this process has 78.60 GiB memory in use. Of the "
    "allocated memory 70.00 GiB is allocated by PyTorch, with 1.50 GiB allocated in private pools (e.g., CUDA Graphs), "
    "and 5.25 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_ALLOC_CONF=expandable_segments:True"
)
MIDDLE = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.70 GiB total capacity; "
    "22.10 GiB already allocated; 5.81 MiB free; 22.15 GiB reserved in total by PyTorch) If reserved memory is >> ..."
)


def test_newest_wording() -> None:
    report = read_oom_line(NEW)
    assert report.device == 3
    assert report.requested == 2 * GIB
    assert report.free == 512 * MIB
    assert report.private_pools == round(1.5 * GIB)
    assert report.idle == round(5.25 * GIB)
    assert report.cause == "cache_may_cover"
    assert report.short_by is None
    assert report.non_torch == pytest.approx((79.15 - 0.5 - 70.0 - 5.25) * GIB, abs=2)
    assert any("private pools" in line for line in report.advice)


def test_middle_wording_and_mixed_units() -> None:
    report = read_oom_line(MIDDLE)
    assert report.idle == pytest.approx(0.05 * GIB, rel=0.01)
    assert report.cause == "cache_may_cover"
    assert read_oom_line(MIDDLE.replace("20.00 MiB", "20.00 GiB")).cause == "capacity"


def test_a_limit_set_for_the_process_is_named() -> None:
    line = (
        "CUDA out of memory. Tried to allocate 120.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 138.00 GiB "
        "is free. 512.00 MiB allowed; Of the allocated memory 350.00 MiB is allocated by PyTorch, and 100.00 MiB is "
        "reserved by PyTorch but unallocated."
    )
    assert read_oom_line(line).cause == "allowance"


def test_lines_that_say_nothing() -> None:
    assert not is_oom_line("epoch 3 done, memory is fine")
    assert not is_oom_line("out of memory is a state of mind")
    report = read_oom_line("CUDA error: out of memory")
    assert report.cause == "incomplete"
    assert report.advice == ()


@needs_cases
def test_four_reported_lines() -> None:
    lines = (CASES / "oom-lines" / "lines.txt").read_text().splitlines()
    assert all(map(is_oom_line, lines))
    m1, m2, m3, m4 = map(read_oom_line, lines)
    assert [m.cause for m in (m1, m2, m3, m4)] == ["not_capacity", "capacity", "capacity", "cache_may_cover"]
    assert m1.non_torch is not None
    assert m1.non_torch / GIB == pytest.approx(8.96, abs=0.01)
    assert not any("expandable" in line for line in m1.advice)
    assert m2.short_by is not None
    assert m2.short_by / GIB == pytest.approx(2.23, abs=0.01)
    assert m3.short_by is not None
    assert m3.short_by / GIB == pytest.approx(42.7, abs=0.01)
    assert m4.idle is not None
    assert m4.idle / GIB == pytest.approx(6.5, abs=0.01)


def test_parts_add_up_and_name_what_changed() -> None:
    a = split_device(203503.89, 221706, 229437)
    b = split_device(203503.89, 242670, 250401)
    change = compare_parts(a, b)
    assert change.delta.device == pytest.approx(20964)
    assert change.delta.live == 0
    assert (a.foreign, b.foreign) == (7731, 7731)
    assert change.carried_by == ("idle",)
    assert (a.idle, b.idle) == (pytest.approx(18202.11), pytest.approx(39166.11))


@needs_cases
def test_device_counter_against_allocator() -> None:
    table = pd.read_csv(CASES / "device-counter-vs-allocator" / "decomposition.csv").set_index("config")

    def parts(config: str) -> object:
        row = table.loc[config]
        return split_device(row["live_peak_alloc"], row["torch_reserved"], row["device_counter"])

    f = compare_parts(parts("PP1_F"), parts("PP2_F"))
    m = compare_parts(parts("PP1_M"), parts("PP2_M"))
    assert [f.ratio[k] for k in ("live", "reserved", "device")] == [
        pytest.approx(v, abs=5e-4) for v in (0.717, 0.646, 0.855)
    ]
    assert [m.ratio[k] for k in ("live", "reserved", "device")] == [
        pytest.approx(v, abs=5e-4) for v in (0.693, 0.748, 0.938)
    ]
    assert (f.delta.foreign, m.delta.foreign) == (930, 928)


def test_reserved_above_the_device_is_kept_and_swapped_columns_are_refused() -> None:
    assert split_device(16, 12564, 6144).foreign == 6144 - 12564
    with pytest.raises(InputError, match="exceeds reserved"):
        split_device(10, 5, 20)


def test_share_that_came_back() -> None:
    assert freed_share(2.03, 178.23) == pytest.approx(0.0113, abs=1e-4)
    assert freed_share(176.16, 3.94) == pytest.approx(0.978, abs=1e-3)
    with pytest.raises(InputError):
        freed_share(0, 0)


@needs_cases
def test_three_stream_layouts() -> None:
    table = pd.read_csv(CASES / "fix-variants-time-memory" / "variants.csv")
    costs = ["gpu_ms", "peak_reserved_gb"]
    result = compare_variants(table, "variant", costs, "single_stream").set_index("variant")
    assert result.loc["multi_stream", "gpu_ms_ratio"] - 1 == pytest.approx(-0.083, abs=5e-4)
    assert result.loc["multi_stream_optimized", "gpu_ms_ratio"] - 1 == pytest.approx(-0.073, abs=5e-4)
    assert result.loc["multi_stream", "peak_reserved_gb_ratio"] - 1 == pytest.approx(0.98, abs=5e-3)
    assert result.loc["single_stream", "dominated_by"] == ("multi_stream_optimized",)
    assert result.loc["multi_stream", "dominated_by"] == ()
    assert result["runs"].tolist() == [1, 1, 1]
    with_cpu = compare_variants(table, "variant", [*costs, "cpu_ms"], "single_stream").set_index("variant")
    assert with_cpu.loc["single_stream", "dominated_by"] == ()  # its CPU time is the lowest


def test_variant_tables_that_cannot_be_compared() -> None:
    table = pd.DataFrame({"variant": ["a", "b"], "ms": [1.0, "fast"]})
    with pytest.raises(InputError, match="not a number"):
        compare_variants(table, "variant", ["ms"], "a")
    with pytest.raises(InputError, match="no column 'gb'"):
        compare_variants(table, "variant", ["gb"], "a")
    with pytest.raises(InputError, match="no variant 'c'"):
        compare_variants(pd.DataFrame({"variant": ["a"], "ms": [1.0]}), "variant", ["ms"], "c")
