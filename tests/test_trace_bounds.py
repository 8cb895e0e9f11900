"""Roles, bytes and operations, and roofline verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_support import DATA, event, launch, shared, write

from rcatools.errors import InputError
from rcatools.trace.bounds import Ceilings, bound_of, kernel_work, read_ceilings
from rcatools.trace.read import load_trace
from rcatools.trace.roles import role_of, rules
from rcatools.trace.summary import summarize
from rcatools.trace.work import Work, work_of

CARD = Ceilings(4.0e12, {"bf16": 800e12, "fp32": 100e12}, "measured here")
BF16 = '["c10::BFloat16","c10::BFloat16","c10::BFloat16"]'

ROLES = {
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1_SN": "matmul",
    "nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT": "matmul",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(x)": "matmul",
    "wvSplitKSml<1>": "matmul",
    "KQuantGemmK<u16,a>": "matmul",
    "QuantizeQ8KK": "quantization",
    "PagedAttnOnline<bf16>": "attention",
    "kernel_paged_attention_2d": "attention",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>": "attention",
    "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_40B": "attention",
    "sage_fwd": "attention",
    "kv_gather_kernel": "attention",
    "cache_write_kernel": "cache_write",
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>": "cache_write",
    "void (anonymous namespace)::store_kvcache<2048l, 4, false, long>": "cache_write",
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64E": "norm",
    "triton_red_fused_add_mean_mul_pow_rsqrt_0": "norm",
    "triton_poi_fused_addmm_gelu_view_26": "elementwise",
    "triton_poi_fused_clone_transpose_21": "copy",
    "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(x)::{lambda()#2}>": "elementwise",
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda(x)>>": "copy",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>>": "optimizer",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "collective",
    "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32": "convolution",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForwardReg<c10::BFloat16>": "softmax",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>": "reduction",
    "__amd_rocclr_fillBufferAligned": "fill",
    "void compute_cuda_kernel<long>(long*, long*, long*, long, long)": "other",
    "my_secret_kernel": "other",
}  # fmt: skip


@pytest.mark.parametrize(("name", "role"), ROLES.items())
def test_roles_from_names(name: str, role: str) -> None:
    assert role_of(name) == (role, "none" if role == "other" else "name")


def test_operation_decides_only_where_the_name_does_not() -> None:
    assert role_of("my_secret_kernel", "aten::addmm") == ("matmul", "op")
    assert role_of("nvjet_1", "aten::add") == ("matmul", "name")
    assert role_of("my_secret_kernel", "custom::thing") == ("other", "none")


def test_every_rule_is_reachable_and_names_a_role() -> None:
    assert {rule.role for rule in rules()} >= {
        "attention",
        "matmul",
        "norm",
        "cache_write",
        "collective",
        "copy",
        "elementwise",
    }
    assert all(rule.name or rule.op for rule in rules())


def test_little_time_of_real_traces_has_no_role() -> None:
    for path in ("h100/google_owlv2-large-patch14-ensemble__1016001", "inference/sglang_Qwen3-8B_decode", "inference/xdit_flux.1_aiter_sage/profile_trace_rank_0"):  # fmt: skip
        table = summarize(load_trace(shared(f"real/tracelens/{path}.json.gz"))).kernels
        assert table.loc[table["role"] == "other", "share"].sum() < 0.001


@pytest.mark.parametrize(
    ("op", "shapes", "role", "moved", "flops"),
    [
        ("aten::mm", [[16, 32], [32, 8]], "matmul", 2 * (16 * 32 + 32 * 8 + 16 * 8), 2 * 16 * 32 * 8),
        ("aten::addmm", [[8], [16, 32], [32, 8]], "matmul", 2 * (8 + 16 * 32 + 32 * 8 + 16 * 8), 2 * 16 * 32 * 8),
        ("aten::bmm", [[3, 4, 5], [3, 5, 6]], "matmul", 2 * 3 * (20 + 30 + 24), 2 * 3 * 4 * 5 * 6),
        ("aten::linear", [[2, 7, 5], [9, 5], [9]], "matmul", 2 * (70 + 45 + 9 + 2 * 7 * 9), 2 * 14 * 5 * 9),
        ("aten::add", [[4, 6], [6]], "elementwise", 2 * (24 + 6 + 24), 24),
        ("aten::copy_", [[10], [10]], "copy", 40, 0),
        ("aten::native_layer_norm", [[3, 8], [8], [8]], "norm", 2 * (24 + 16 + 24), 120),
        ("aten::_scaled_dot_product_flash_attention", [[1, 2, 10, 4], [1, 2, 20, 4], [1, 2, 20, 4]], "attention",
         2 * (80 + 160 + 160 + 80), 4 * 2 * 10 * 20 * 4),
        ("aten::_flash_attention_forward", [[1, 10, 2, 4], [1, 20, 2, 4], [1, 20, 2, 4]], "attention",
         2 * (80 + 160 + 160 + 80), 4 * 2 * 10 * 20 * 4),
    ],
)  # fmt: skip
def test_bytes_and_operations_by_hand(
    op: str, shapes: list[list[int]], role: str, moved: int, flops: int
) -> None:
    assert work_of(op, json.dumps(shapes), BF16, role) == Work(moved, flops, "bf16")


@pytest.mark.parametrize(
    ("op", "shapes", "role", "name"),
    [("aten::mm", [[16, 32], [33, 8]], "matmul", ""), ("aten::mm", [[16, 32], [32, 8]], "fill", ""), ("aten::mm", [], "matmul", ""),
     ("aten::mm", [[16, 32], [32, 8]], "matmul", "splitKreduce_kernel"), ("aten::unknown", [[2]], "matmul", ""), ("aten::add", "x", "elementwise", "")],
)  # fmt: skip
def test_no_work_where_no_model_fits(op: str, shapes: object, role: str, name: str) -> None:
    assert work_of(op, json.dumps(shapes), BF16, role, name) is None


@pytest.mark.parametrize(
    ("work", "duration", "bound"),
    [
        (Work(4e9, 0, "bf16"), 1250.0, "bandwidth"),  # 80 % of 4 TB/s
        (Work(1e6, 8e11, "bf16"), 1250.0, "compute"),  # 80 % of 800 TFLOP/s
        (Work(4e9, 7e11, "bf16"), 1250.0, "near_ridge"),  # 1000 us of memory, 875 us of compute
        (Work(1e6, 1e6, "bf16"), 4.0, "latency"),
        (Work(4e9, 0, "bf16"), 4000.0, "cannot_tell"),  # a quarter of the ceiling
        (Work(4e9, 0, "bf16"), 500.0, "cannot_tell"),  # twice the ceiling
        (Work(0, 1e9, "fp8"), 10.0, "cannot_tell"),  # no ceiling for the type
    ],
)
def test_verdicts(work: Work, duration: float, bound: str) -> None:
    assert bound_of(work, duration, CARD)[0] == bound


def test_a_figure_above_the_ceiling_is_evidence_of_a_wrong_count() -> None:
    bound, basis = bound_of(Work(4e9, 0, "bf16"), 500.0, CARD)
    assert bound == "cannot_tell"
    assert "200 %" in basis
    assert "does not hold" in basis
    assert (
        "100 %" in bound_of(Work(4e9, 0, "bf16"), 990.0, CARD)[1]
    )  # within the tolerance it is shown as 100 %


def test_two_thirds_of_peak_is_consistent_but_below_it_is_not_told() -> None:
    card = Ceilings(936.2e9, {}, "data sheet", measured=False)
    basis = bound_of(Work(623e9 / 1e3, 0, None), 1000.0, card)
    assert basis[0] == "bandwidth"
    assert "67 % of the bandwidth ceiling (data sheet)" in basis[1]


def test_missing_knowledge_is_said() -> None:
    assert bound_of(None, 5.0, CARD) == ("cannot_tell", "bytes and operations are not known")
    assert bound_of(Work(1, 1, "bf16"), 5.0, None) == ("cannot_tell", "no ceilings given for this device")


def test_measured_ceilings_above_the_data_sheet_are_reported() -> None:
    wrong = Ceilings(
        9e12, {"bf16": 700e12}, "probe", upper=Ceilings(4.8e12, {"bf16": 989e12}, "sheet", measured=False)
    )
    assert wrong.problems() == ("measured bandwidth is 188 % of the data sheet's",)
    summary = summarize(load_trace(DATA / "trace_off.json.gz"), wrong)
    assert [w.code for w in summary.warnings if w.code == "ceilings"] == ["ceilings"]


def test_no_verdict_on_real_traces_claims_more_than_the_ceiling() -> None:
    trace = load_trace(shared("real/tracelens/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz"))
    table = summarize(
        trace, Ceilings(3.35e12, {"bf16": 989e12}, "H100 SXM data sheet", measured=False)
    ).kernels
    bounded = table[table["bound"].isin(["bandwidth", "compute", "near_ridge"])]
    assert len(bounded) > 3
    assert (bounded["bytes_per_s"] <= 1.03 * 3.35e12).all()
    assert (bounded["flops_per_s"] <= 1.03 * 989e12).all()
    assert table["work_coverage"].between(0, 1).all()


def test_rocprof_compute_roofline_gives_the_weakest_device() -> None:
    found = read_ceilings(shared("real/rocprof-compute/dispatch_0_MI200/roofline.csv"))
    assert found.bytes_per_s == pytest.approx(1388.76e9, rel=1e-4)
    assert found.flops["bf16"] == pytest.approx(170.4e12, rel=1e-3)
    assert found.measured


def test_ceilings_from_json_and_from_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"bytes_per_s": 4e12, "flops": {"bf16": 8e14}, "source": "s"}))
    assert read_ceilings(path) == Ceilings(4e12, {"bf16": 8e14}, "s")
    path.write_text(
        json.dumps({"copy_bytes_per_s": 4.1e12, "read_bytes_per_s": 4.0e12, "matmul_flops": 7.8e14})
    )
    assert read_ceilings(path) == Ceilings(4.1e12, {"bf16": 7.8e14}, "c.json")
    for text in ("{}", "{", "a,b\n1,2\n", '{"bytes_per_s": "x"}'):
        path.write_text(text)
        with pytest.raises(InputError, match="give"):
            read_ceilings(path)


def test_declared_work_reaches_graph_replayed_kernels(tmp_path: Path) -> None:
    events = [
        launch(1, 0, "cudaGraphLaunch"),
        *(event("kv_gather_kernel", 10 + 40 * i, 33, correlation=1) for i in range(5)),
    ]
    trace = load_trace(write(tmp_path / "t.json", events))
    declared = {"kv_gather": Work(1e8, 1e6, "bf16")}
    row = kernel_work(trace, declared).iloc[0]
    assert (row["known"], row["bytes"]) == (5, 5e8)
    assert summarize(trace, CARD, declared).kernels["bound"].tolist() == ["bandwidth"]
