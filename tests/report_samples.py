"""A made-up diagnosis that fills every field of verdict.json, for tests of the renderers only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from rcatools.diagnosis import records as r

ARMS = (
    ("off_again", "repeat", "the baseline once more (A/A)", 0.9997, 0.0010, "equivalent"),
    ("side", "suspect", "throwaway forward and capture on a new stream", 1.0497, 0.0011, "slower"),
    ("side_gc", "fix", "side, then gc.collect and empty_cache", 1.0502, 0.0012, "slower"),
    ("clear_blas", "fix", "side, then the BLAS workspaces cleared and empty_cache", 1.0491, 0.0014, "slower"),
    ("current", "fix", "throwaway capture on the runtime stream", 0.9994, 0.0014, "equivalent"),
    (
        "pad_untracked",
        "probe",
        "76 MiB through the runtime before the KV cache",
        1.0016,
        0.0014,
        "equivalent",
    ),
    ("touch_stream", "probe", "one tiny kernel on one further stream", 1.0488, 0.0013, "slower"),
    ("streams_1", "probe", "1 further stream", 1.0003, 0.0012, "equivalent"),
    ("streams_2", "probe", "2 further streams", 1.0461, 0.0012, "slower"),
    ("streams_4", "probe", "4 further streams", 1.0486, 0.0012, "slower"),
    ("streams_8", "probe", "8 further streams", 1.0490, 0.0013, "slower"),
    (
        "plant_additive",
        "plant_additive",
        "planted: three empty kernels more per layer",
        1.112,
        0.0015,
        "slower",
    ),
    (
        "plant_multiplicative",
        "plant_multiplicative",
        "planted: a fifth more KV read",
        1.256,
        0.0018,
        "slower",
    ),
)


def estimate(name: str, role: str, summary: str, ratio: float, half: float, verdict: str) -> r.ArmEstimate:
    return r.ArmEstimate(
        arm=name,
        against="off",
        metric="step_us",
        ratio=ratio,
        ci_low=ratio - half,
        ci_high=ratio + half,
        n=14,
        mde=1.4 * half,
        p_value=0.61 if verdict == "equivalent" else 1e-9,
        verdict=verdict,
        reasons=("interval_inside_margin",) if verdict == "equivalent" else ("interval_excludes_one",),
        role=role,
        summary=summary,
        recording="sample",
    )


def evidence(
    text: str, arms: tuple[str, ...] = ("off", "side"), notebook: str = "01_reproduce"
) -> r.Evidence:
    return r.Evidence(text, "sample", arms, "samples", notebook, 1.05, 1.049, 1.051, "ratio", 14, 0.002)


def fix(item: r.ArmEstimate) -> r.FixResult:
    works = item.verdict == "equivalent"
    return r.FixResult(
        arm=item.arm,
        role=item.role,
        summary=item.summary,
        ratio=item.ratio,
        ci_low=item.ci_low,
        ci_high=item.ci_high,
        mde=item.mde,
        n=item.n,
        verdict=item.verdict,
        reasons=item.reasons,
        recovered=1.0 if works else 0.01,
        memory_bytes=126_701_535_232,
        memory_delta_bytes=0 if works else 79_691_776,
        live_bytes=0 if works else 79_691_776,
        correct=True,
        output_rel_error=0.0,
        best=works,
        kv_delta_bytes=0 if works else -79_691_776,
        output="identical",
        text=f"{item.arm} {'removes' if works else 'does not remove'} the slowdown",
    )


def prediction(
    text: str, holds: bool | None, observation: str, *, necessary: bool = True
) -> r.PredictionResult:
    return r.PredictionResult(
        observation=observation,
        text=text,
        expected="slower" if holds else "equivalent",
        observed="+5.0 % [+4.9 %, +5.1 %]" if holds is not None else "",
        holds=holds,
        necessary=necessary,
        distinct_from=("placement",) if necessary else (),
        places=(evidence(text),) if holds is not None else (),
        reason="" if holds is not None else "needs a ROCm device",
    )


def sample_diagnosis() -> r.Diagnosis:
    arms = tuple(estimate(*row) for row in ARMS)
    by_name = {item.arm: item for item in arms}
    observations = tuple(
        r.Observation(
            name,
            text,
            "ratio",
            r.Outcome(
                outcome,
                outcome is not None,
                observed,
                (evidence(observed),) if outcome else (),
                "" if outcome else "needs a ROCm device",
            ),
            f"rcatools record capture-stream --arms off,{name}",
        )
        for name, text, outcome, observed in (
            ("touch_stream", "One tiny kernel on one more stream", "slower", "+4.9 % [+4.8 %, +5.0 %]"),
            (
                "pad_untracked",
                "An untracked pad of the same size",
                "equivalent",
                "+0.16 % [+0.02 %, +0.30 %]",
            ),
            ("gaps", "Gaps between kernels of a replay", "longer", "+131 us of +127 us"),
            ("hwq_1", "One hardware queue (ROCm)", None, ""),
        )
    )
    hypotheses = (
        r.HypothesisResult(
            "queue_cliff",
            "Queue cliff",
            "cause",
            "one used stream too many makes each boundary between graph kernels longer",
            "our probe",
            r.Status.SUPPORTED,
            "one tiny kernel on one more stream is enough, and the gaps grow while durations do not",
            (
                prediction("any kernel on one more stream slows the step", True, "touch_stream"),
                prediction("gaps grow, durations do not", True, "gaps"),
            ),
        ),
        r.HypothesisResult(
            "placement",
            "Placement of the KV cache",
            "cause",
            "a stranded block moves the KV cache to slower memory",
            "#48526",
            r.Status.CONTRADICTED,
            "a pad of the same size changes nothing (detection limit 0.2 %)",
            (
                prediction("a pad of the same size slows the step", False, "pad_untracked"),
                prediction("kernels themselves slow down", False, "gaps"),
            ),
        ),
        r.HypothesisResult(
            "cross_stream_wait",
            "Cross-stream wait",
            "cause",
            "a barrier on another hardware queue",
            "#57229",
            r.Status.UNDECIDED,
            "its decisive arm needs ROCm",
            (prediction("gone with one hardware queue", None, "hwq_1"),),
            r.Decide(
                "rcatools record capture-stream --arms off,side,hwq_1_side", "the queue arms on an MI300X"
            ),
        ),
    )
    links = tuple(
        r.LinkResult(name, text, verdict, reason, (evidence(reason, notebook=notebook),), as_cause)
        for name, text, verdict, reason, as_cause, notebook in (
            (
                "a",
                "a side-stream forward leaves a live block",
                r.LinkVerdict.SHOWN,
                "79,691,776 B live",
                True,
                "03_allocator",
            ),
            (
                "b",
                "gc and empty_cache do not return it",
                r.LinkVerdict.SHOWN,
                "still 79,691,776 B",
                True,
                "03_allocator",
            ),
            (
                "c",
                "the KV cache moves",
                r.LinkVerdict.NOT_SHOWN,
                "offset 0 in all arms",
                False,
                "03_allocator",
            ),
            (
                "d",
                "bandwidth-bound kernels slow down",
                r.LinkVerdict.NOT_SHOWN,
                "limit 0.4 %",
                False,
                "02_profile_kernels",
            ),
            ("e", "tokens per second fall", r.LinkVerdict.SHOWN, "step +5.0 %", False, "01_reproduce"),
        )
    )
    return r.Diagnosis(
        investigation="capture-stream",
        title="Decode slower after profiling CUDA graphs on a side stream",
        question="Does a throwaway capture on a side stream slow decode, and why?",
        answer="A side-stream capture makes the decode step 5.0 % slower here; the cause that stands is the queue "
        "cliff, not the stranded block.",
        details=("The step takes 2,670 us instead of 2,543 us.", "AMD is open: no ROCm device was at hand."),
        effect=by_name["side"],
        noise=r.Noise(
            ("off", "off_again"),
            0.9997,
            0.9987,
            1.0007,
            0.0013,
            0.0014,
            14,
            "equivalent",
            "A/A quiet: 0.13 %",
        ),
        sensitive=True,
        links=links,
        chain_ends_at="c",
        chain_text="The chain ends at (c): the KV cache did not move, so placement is not the cause.",
        observations=observations,
        hypotheses=hypotheses,
        claims=(
            r.ClaimResult(
                "july",
                "vllm-project/vllm#48453",
                "https://github.com/vllm-project/vllm/issues/48453",
                "2026-07-13",
                "decode is 17 to 20 % slower",
                "-17 to -20 %",
                "+5.0 % time",
                r.ClaimStatus.NOT_ATTRIBUTABLE,
                ("other card and runtime", "uncommitted changes"),
                (r.Difference("device", "gfx950", "NVIDIA H200"), r.Difference("rocm", "7.2", None)),
                "rcatools report capture-stream --live",
            ),
        ),
        fixes=tuple(fix(item) for item in arms if item.role == "fix"),
        arms=arms,
        mechanisms=(
            r.MechanismResult("side", r.Mechanism.LONGER_GAPS, 1.03, "gaps explain 103 % of the difference"),
            r.MechanismResult("plant_additive", r.Mechanism.MORE_KERNELS, 0.97, "120 kernels more per step"),
        ),
        plants=(
            r.PlantResult(
                "plant_additive", "a fixed time per kernel", True, "more_kernels", "found: +11.2 %"
            ),
            r.PlantResult("plant_multiplicative", "more bytes", True, "slower_kernels", "found: +25.6 %"),
        ),
        kernels=(
            r.KernelResult(
                "kv_gather", "bandwidth", 40, 21.4, -0.05, 0.9976, 0.9961, 0.9991, 0.004, 0.88, "equivalent"
            ),
            r.KernelResult(
                "expert_gemm", "compute", 10, 18.2, 0.11, 1.006, 0.998, 1.014, 0.009, 0.42, "equivalent"
            ),
        ),
        reconcile=(r.Reconciliation("side", 126.6, 131.0, -7.0, 0.98, 2.6, "the gaps explain the slowdown"),),
        published=(
            r.PublishedNumber(
                "before",
                "vllm-project/vllm#48526",
                "https://github.com/vllm-project/vllm/pull/48526",
                "profiling off",
                83.42,
                "tok/s",
                "MI355X, TP4",
            ),
        ),
        open=(
            r.OpenQuestion(
                "Is it the same on AMD?", "rcatools report capture-stream --live", "one MI300X for 20 minutes"
            ),
        ),
        environment={
            "device": "NVIDIA H200",
            "backend": "cuda",
            "driver": "580.105.08",
            "torch": "2.11.0+cu130",
            "recordings": [
                {
                    "name": "sample",
                    "state": "complete",
                    "created_utc": "2026-12-01T12:00:00+00:00",
                    "blocks": 14,
                    "runs_ok": 182,
                    "runs_failed": 0,
                    "command": "rcatools record capture-stream --out recordings/sample --device cuda",
                    "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": None},
                    "files": {"samples.parquet": "ab" * 32},
                }
            ],
        },
        reproduce="rcatools report capture-stream --recording capture-stream-h200",
        warnings=(),
    )


def sample_document() -> dict[str, Any]:
    return sample_diagnosis().document()


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """The same records or JSON with every text changed; members of enums and keys stay."""
    if isinstance(value, str) and not isinstance(value, r.StrEnum):
        return change(value)
    if isinstance(value, dict):
        return {key: map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map_strings(item, change) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(
            value,
            **{
                item.name: map_strings(getattr(value, item.name), change)
                for item in dataclasses.fields(value)
            },
        )
    return value
