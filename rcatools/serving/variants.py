"""The variants of vLLM's graph-memory profile, and the environment variables through which a run asks for one.

Imported inside vLLM's processes, so it needs nothing but the standard library.
"""

from __future__ import annotations

ARM = "RCATOOLS_VLLM_ARM"  # which variant; the plugin does nothing without it
MARKERS = "RCATOOLS_VLLM_MARKERS"  # folder for one marker file per process
SNAPSHOTS = "RCATOOLS_VLLM_SNAPSHOTS"  # folder for allocator snapshots; none are taken without it
RUN = "RCATOOLS_VLLM_RUN"  # id of the run, by which its processes are found again

VARIANTS = {
    "stock": "vLLM as it is",
    "off": "no profiling capture; nothing is estimated",
    "side": "profiling capture on a new stream",
    "current": "profiling capture on vLLM's own runtime stream",
    "side_gc": "side, then gc.collect and empty_cache",
    "prewarm": "side, after a forward on the runtime stream",
    "clear_blas": "side, then the BLAS workspaces freed, gc.collect and empty_cache",
}
ON_SIDE_STREAM = frozenset({"side", "side_gc", "prewarm", "clear_blas"})
NOTHING_TO_PATCH = "nothing to patch on this platform"
POINTS = ("after_profile", "after_kv_cache", "after_capture")
