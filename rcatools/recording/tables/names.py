"""What column names mean: roles, statistics, units, and which direction is better."""

from __future__ import annotations

import re
from collections.abc import Iterable

ROLES: dict[str, tuple[str, ...]] = {
    "arm": ("arm", "arms", "variant", "engine", "build", "config", "configuration", "version", "label", "branch",
            "commit", "treatment", "condition", "implementation", "impl", "setup", "side", "fix"),
    "block": ("block", "blocks", "pair", "block_id", "round"),
    "run": ("run", "process", "run_id", "rep", "repeat", "repetition", "replicate", "trial", "pid", "spawn", "seed",
            "process_id", "invocation", "session", "attempt", "launch", "server"),
    "sample": ("sample", "iteration", "iter", "sample_id", "call", "step"),
    "metric": ("metric", "measure", "metric_name", "counter"),
    "workload": ("workload", "model", "benchmark", "kernel", "case", "test", "shape", "name", "scenario", "task",
                 "dataset", "operator", "op", "problem", "change", "claim", "prompt", "layer", "suite"),
    "machine": ("machine", "host", "hostname", "node", "board", "box", "runner", "gpu", "device", "gpu_uuid",
                "device_uuid", "machine_id"),
    "day": ("day", "date"),
    "order": ("order", "position", "sequence", "seq", "timestamp", "start_time", "started", "time_order"),
    "class": ("class", "family", "category", "kind"),
    "unit": ("unit", "units"),
}  # fmt: skip
SHARED_PROCESS = ("process", "pid", "spawn", "session", "server", "process_id")
PARAMETERS = frozenset(
    {"batch", "batch_size", "bs", "seq_len", "seqlen", "seq", "context", "context_len", "depth", "concurrency",
     "max_concurrency", "num_tokens", "tokens", "input_len", "output_len", "prompt_len", "tp", "pp", "ep", "dtype",
     "precision", "kv", "quant", "qps", "rate", "provider"}
)  # fmt: skip
COUNTS = frozenset(
    {"n", "count", "runs", "repeats", "repetitions", "reps", "trials", "num_runs", "n_runs", "replicates", "num",
     "n_trials"}
)  # fmt: skip
SAMPLE_COUNTS = frozenset({"samples", "rounds", "iterations", "iters", "num_samples", "n_samples", "calls"})
IDENTIFIERS = frozenset({"id", "idx", "index", "row", "pr", "issue", "commit", "sha", "line"})
_STATISTICS: dict[str, tuple[str, ...]] = {
    "mean": ("mean", "avg", "average"),
    "median": ("median", "p50", "med"),
    "sd": ("sd", "std", "stdev", "stddev", "std_dev", "sigma", "standard_deviation"),
    "sem": ("sem", "stderr", "std_err", "standard_error"),
    "low": ("min", "minimum", "fastest"),
    "high": ("max", "maximum", "slowest"),
    "count": ("n", "count", "runs"),
}
_WITHIN = re.compile(r"(?:within|inside|in)_?(?:run|process)?_?(?:sd|std|stdev|stddev)(?:_.*)?")
_TOLERANCE = re.compile(r"(?:tolerance|margin)(?:_(?:pct|percent))?")
_SHARE = re.compile(r"(?:.*_)?(?:pct|percent|share|ratio|share_pct)(?:_.*)?")
_TIME_UNITS = {
    "ns",
    "us",
    "ms",
    "s",
    "sec",
    "secs",
    "second",
    "seconds",
    "msec",
    "usec",
    "min",
    "minutes",
    "h",
}
_RATE = re.compile(
    r"(?:^|_)(?:tok|toks|token|tokens|t|req|reqs|requests?|it|iter|its|img|imgs|images?|samples?|frames?|ops?|steps?|"
    r"[kmgt]?i?b|bytes?|[kmgtp]?flops?|flop|[kmgtp]flop)_?(?:per|p)?_(?:s|sec|secs|second|seconds)(?:$|_)"
    r"|(?:^|_)(?:per_(?:s|sec|second))(?:$|_)"
)
_RATE_WORDS = re.compile(
    r"(?:^|_)(?:throughput|bandwidth|tps|qps|rps|fps|gbps|tbps|mbps|[kmgtp]flops|flops|speed|speedup|mfu|goodput|hz|"
    r"utili[sz]ation|hit_rate|acceptance)(?:$|_)"
)
_LESS_WORDS = re.compile(
    r"(?:^|_)(?:time|times|latency|duration|elapsed|runtime|wall|walltime|ttft|tpot|itl|e2el|cycles|ns|us|ms|s|sec|"
    r"secs|seconds|msec|usec|delay|cost|mib|gib|kib|mb|gb|kb|bytes|memory|mem|alloc|allocated|reserved|rss|"
    r"watts?|joules?|op|tok|token)(?:$|_)"
)


def plain(name: object) -> str:
    """A column name in lower case with one underscore for every run of other characters."""
    return re.sub(r"[^0-9a-z]+", "_", str(name).strip().lower()).strip("_")


def role_of(name: object) -> str | None:
    """The role a column name stands for, None for an unknown one; "value" is no role."""
    key = plain(name)
    return next((role for role, names in ROLES.items() if key in names), None)


def statistic_of(name: object) -> tuple[str | None, str]:
    """The statistic a column holds ("mean", "median", "sd", "sem", "low", "high", "count", "sample_count",
    "within_sd", "margin") and the name of what it is about, "" where the name says the statistic only."""
    key = plain(name)
    if key in COUNTS:
        return "count", ""
    if key in SAMPLE_COUNTS:
        return "sample_count", ""
    if _WITHIN.fullmatch(key):
        return "within_sd", ""
    if _TOLERANCE.fullmatch(key):
        return "margin", ""
    for statistic, words in _STATISTICS.items():
        for word in words:
            if key == word:
                return statistic, ""
            if key.startswith(word + "_") and statistic != "count":
                return statistic, key[len(word) + 1 :]
            if key.endswith("_" + word):
                return statistic, key[: -len(word) - 1]
    return None, key


def is_share(name: object) -> bool:
    """Whether a column holds percentages or shares, which are derived and not measured."""
    return _SHARE.fullmatch(plain(name)) is not None


def more_is_better(*names: object) -> bool | None:
    """What names and units say about the direction: rates are better high, times and memory low, None: nothing."""
    for name in names:
        text = re.sub(r"/\s*", "_per_", str(name).strip().lower())
        key = plain(text)
        if not key:
            continue
        if _RATE.search(plain(text.replace("_per_", "_"))) or _RATE.search(key) or _RATE_WORDS.search(key):
            return True
        if _LESS_WORDS.search(key):
            return False
    return None


def unit_in(name: object) -> str:
    """The unit a column name ends in ("ms", "tok_s", "mib"), "" for none."""
    key = plain(name)
    found = re.search(
        r"(?:^|_)((?:tok|tokens|req|it|img|samples|gb|gib|mb|tb)_s|tflops|gflops|mib|gib|kib|mb|gb|kb|bytes|"
        r"ns|us|ms|s|sec|seconds|msec|usec|cycles)$",
        key,
    )
    return found.group(1) if found else ""


def is_time_unit(unit: str) -> bool:
    """Whether a unit is one of time."""
    return plain(unit) in _TIME_UNITS


def listed(names: Iterable[object], most: int = 12) -> str:
    """Names for a message: the first dozen, quoted, and how many more there are."""
    every = [repr(str(name)) for name in names]
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest} more" if rest > 0 else "")
