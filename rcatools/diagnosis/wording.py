"""How outcomes, owners and reason codes read: names that files use, as words for people."""

from __future__ import annotations

from collections.abc import Iterable

from rcatools.units import counted

OWNER_TEXT = {
    "blas_workspace": "torch's BLAS workspace",
    "blas_lt_workspace": "torch's BLAS-Lt workspace",
    "convolution_workspace": "a convolution workspace",
    "graph_pool": "a graph's private pool",
    "raw_allocation": "a raw allocation without an owner in Python",
    "python": "a tensor",
    "nccl": "NCCL or RCCL",
    "aiter": "AITER",
}
SOME = "some"
OUTCOME_TEXT = {
    SOME: "there, but smaller than what counts",
    "carries": "more than half of the effect",
    "absent": "less than half of the effect",
    "partial": "a part of the effect",
    "zero": "below what counts",
    "same": "below what counts",
    "flat": "no change that counts",
    "step": "one step",
    "ramp": "a steady growth",
    "one_mode": "one level",
    "two_modes": "two levels",
    "not_explained": "not explained",
    "changes": "changes in most blocks",
    "several": "several owners",
    "unknown": "no nameable owner",
    "gone": "no such block",
    **OWNER_TEXT,
}
REASON_TEXT = {
    "interval_excludes_one": "the interval excludes no difference",
    "interval_inside_margin": "the interval lies inside the margin",
    "interval_too_wide": "the interval is too wide",
    "too_few_runs": "few runs",
    "within_noise_floor": "equal arms differ as much",
    "order_or_drift": "drift or order may explain it",
    "modes_in_arm": "one arm falls on two levels",
    "unequal_spread": "one arm spreads more than the other",
    "outlier_carries_effect": "one outlier carries it",
    "mixed_machines": "runs of different machines",
    "single_run_per_arm": "one run per arm",
    "pooled_samples_refused": "samples of one process are no replicates",
    "outputs_differ": "its output is not the baseline's",
}


SETTING_TEXT = {
    "arch": "architecture",
    "torch": "torch version",
    "vllm": "vLLM version",
    "rocm": "ROCm version",
    "rocm_runtime": "ROCm runtime",
    "cuda": "CUDA version",
}


def setting(key: str) -> str:
    """A key of an environment as words."""
    return SETTING_TEXT.get(key, key.replace("_", " "))


def said(outcome: str) -> str:
    """An outcome as words, such as "less than half of the effect" for ``absent``."""
    return OUTCOME_TEXT.get(outcome, outcome.replace("_", " "))


def in_words(outcomes: Iterable[str]) -> str:
    """Several outcomes as words."""
    return " or ".join(dict.fromkeys(said(name) for name in outcomes))


def owner(name: str) -> str:
    """Who holds a block, in words."""
    return OWNER_TEXT.get(name, name.replace("_", " "))


def reasons(codes: Iterable[str]) -> str:
    """Reason codes as words; of an interval without 1 only where equal arms do not differ as much."""
    told = [str(code) for code in codes]
    if "within_noise_floor" in told:
        told = [code for code in told if code != "interval_excludes_one"]
    return ", ".join(REASON_TEXT.get(code, code.replace("_", " ")) for code in told)


def replicated(number: int, replicate: str = "block") -> str:
    """How many replicates: "12 blocks", "8 processes", "16 blocks of one process"."""
    head, _, rest = replicate.partition(" ")
    many = f"{head}es" if head.endswith("s") else f"{head}s"
    return counted(number, head, many) + (f" {rest}" if rest else "")
