"""What the doctor says about machines that are not here, about torch, masks and streams."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest

import rcatools
from rcatools.cli.app import main
from rcatools.device import clocks, inspect
from rcatools.device.backend import choose_backend, describe, visible_mask
from rcatools.device.ceilings import datasheet
from rcatools.device.fingerprint import code_state, settings, source_hash
from rcatools.errors import InputError, UnavailableError, UnknownNameError

ROOT = Path(__file__).resolve().parents[1]


def machine(**changes: Any) -> dict[str, Any]:
    """An examined NVIDIA machine on which all is well."""
    report: dict[str, Any] = {
        "packages": dict.fromkeys(inspect.RECORDER + inspect.REPORTER, True),
        "tools": {"nvidia-smi": True, "rocm-smi": False, "amd-smi": False},
        "masks": {},
        "torch": {"version": "2.13.0", "build": "cuda", "devices": 1},
        "device": {"backend": "cuda"},
        "clocks": {
            "readable": True,
            "reading": {"other_processes": 0, "throttle": "none", "sm_clock_mhz": 1980.0},
            "cost_us": 2.0,
        },
    }
    return report | changes


def texts(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f.level, f.text) for f in inspect.findings(report)]


def test_a_healthy_machine_gets_no_finding() -> None:
    assert inspect.findings(machine()) == []


@pytest.mark.parametrize(
    ("changes", "level", "said"),
    [
        ({"torch": None}, "note", "container"),
        ({"torch": {"version": "2", "build": "cpu", "devices": 0}}, "warning", "install the cuda one"),
        ({"torch": {"version": "2", "build": "cuda", "devices": 0}}, "warning", "hidden by a mask"),
        ({"masks": {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}}, "warning", "hide every GPU"),
        (
            {
                "clocks": {
                    "readable": True,
                    "reading": {"other_processes": 2, "throttle": "none"},
                    "cost_us": 1.0,
                }
            },
            "warning",
            "2 other processes",
        ),
        (
            {"clocks": {"readable": True, "reading": {"throttle": "sw_thermal"}, "cost_us": 1.0}},
            "warning",
            "sw_thermal",
        ),
        ({"clocks": {"readable": False, "reading": None, "cost_us": None}}, "warning", "not readable"),
    ],
)
def test_each_trouble_is_named_with_what_to_do(changes: dict[str, Any], level: str, said: str) -> None:
    found = texts(machine(**changes))
    assert [where for where, text in found if said in text] == [level]


def test_cuda_mask_on_rocm_and_missing_packages() -> None:
    rocm = machine(torch={"version": "2", "build": "rocm", "devices": 1}, masks={"CUDA_VISIBLE_DEVICES": "0"})
    rocm["tools"] = {"nvidia-smi": False, "rocm-smi": True, "amd-smi": False}
    assert any("use HIP_VISIBLE_DEVICES" in text for _, text in texts(rocm))
    bare = machine()
    bare["packages"] = bare["packages"] | {"pyarrow": False, "plotly": False}
    found = texts(bare)
    assert found[0][0] == "problem"
    assert "pyarrow" in found[0][1]
    assert any(level == "note" and "plotly" in text for level, text in found)


def test_a_torch_that_set_up_did_not_leave_makes_the_doctor_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect.stamp_problem(tmp_path) is None
    (tmp_path / inspect.STAMP).write_text("2.9.1+rocm7.0\n")
    monkeypatch.setattr(inspect, "version", lambda _: "2.13.0")
    problem = inspect.stamp_problem(tmp_path)
    assert problem is not None
    assert "2.9.1+rocm7.0" in problem.text
    assert "2.13.0" in problem.text
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr("rcatools.cli.doctor._torch", lambda: None)
    assert main(["doctor"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "mended" in captured.out
    monkeypatch.setattr(inspect, "version", lambda _: "2.9.1+rocm7.0")
    assert main(["doctor"]) == 0


def test_setup_writes_the_stamp_that_the_doctor_reads() -> None:
    assert f'"$VENV/{inspect.STAMP}"' in (ROOT / "tools" / "setup.sh").read_text()


def test_doctor_json_is_one_strict_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rcatools.cli.doctor._torch", lambda: None)
    monkeypatch.setattr(inspect, "stamp_problem", lambda: None)
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert document["torch"] is None
    assert document["ok"] is True
    assert document["packages"]["numpy"] is True


def test_streams_on_a_machine_without_a_gpu_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = types.SimpleNamespace(cuda=types.SimpleNamespace(_is_compiled=lambda: False))
    monkeypatch.setattr("rcatools.device.backend.import_torch", lambda: fake)
    assert main(["doctor", "--streams"]) == 2
    assert "needs a GPU" in capsys.readouterr().err
    assert main(["doctor", "--recording", "x"]) == 2
    assert main(["doctor", "--streams", "--recording", "nothing"]) == 2
    assert "one of capture-stream-cpu" in capsys.readouterr().err


def test_streams_from_the_embedded_recording(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--streams", "--recording", "capture-stream-h200-rivals", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["streams"]
    assert (found["safe"], found["stepped"]) == (4, 6)
    assert found["low_us"] == pytest.approx(0.967, abs=0.003)
    assert found["high_us"] == pytest.approx(1.145, abs=0.003)
    assert found["one_stream"]["launches"] == 40
    assert found["one_stream"]["reached"] is True
    low, high = found["cost_ci"]
    assert low < found["cost_us"] < high
    assert main(["doctor", "--streams", "--recording", "capture-stream-h200-rivals"]) == 0
    assert "docs/streams.md" in capsys.readouterr().out
    assert (ROOT / "docs" / "streams.md").is_file()


def torch_like(*, devices: int, hip: str | None) -> Any:
    cuda = types.SimpleNamespace(device_count=lambda: devices, _is_compiled=lambda: True)
    return types.SimpleNamespace(
        cuda=cuda, version=types.SimpleNamespace(hip=hip, cuda="13"), __version__="2"
    )


def test_the_build_of_torch_decides_between_vendors() -> None:
    assert choose_backend("auto", torch_like(devices=1, hip="7.0")) == "rocm"
    assert choose_backend("auto", torch_like(devices=1, hip=None)) == "cuda"
    assert choose_backend("auto", torch_like(devices=0, hip=None)) == "cpu"
    assert choose_backend("cpu", torch_like(devices=1, hip=None)) == "cpu"
    with pytest.raises(UnavailableError, match="doctor"):
        choose_backend("rocm", torch_like(devices=1, hip=None))
    with pytest.raises(UnknownNameError, match="did you mean 'rocm'"):
        choose_backend("rcom", torch_like(devices=1, hip=None))


def test_masks_follow_the_vendor() -> None:
    assert visible_mask("rocm", 2) == {"HIP_VISIBLE_DEVICES": "2"}
    assert visible_mask("cuda", "GPU-1") == {"CUDA_VISIBLE_DEVICES": "GPU-1"}
    with pytest.raises(InputError):
        visible_mask("cpu", 0)


def test_the_last_level_cache_of_cdna_is_the_infinity_cache() -> None:
    properties = types.SimpleNamespace(
        name="AMD Instinct MI300X",
        gcnArchName="gfx942:sramecc+:xnack-",
        total_memory=1,
        multi_processor_count=304,
        L2_cache_size=4 * 2**20,
    )
    fake = torch_like(devices=1, hip="7.0")
    fake.cuda.get_device_properties = lambda _: properties
    assert describe("rocm", fake).last_level_cache_bytes == 256 * 2**20
    assert describe("cpu", None).backend == "cpu"
    assert datasheet("AMD Instinct MI300X OAM")["bytes_per_s"] == 5.3e12
    assert datasheet("Unheard of") is None


def test_clock_summaries_keep_every_reason_and_invent_none() -> None:
    read = clocks.Reading
    seen = clocks.summarize(
        [read(1980.0, throttle="none"), read(1200.0, throttle="sw_thermal+hw_slowdown"), read(1970.0)]
    )
    assert seen["throttle"] == "hw_slowdown+sw_thermal"
    assert seen["sm_clock_mhz"] == 1970.0
    assert seen["power_w"] is None
    assert clocks.summarize([read(), read()])["throttle"] == "not readable"
    assert clocks.DeviceMonitor("cpu", None).read() == read()


def test_nvml_bits_become_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    me = types.SimpleNamespace(pid=__import__("os").getpid())
    fake = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda name: name,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0x4 | 0x1 | 0x40,
        nvmlDeviceGetComputeRunningProcesses=lambda _: [me, types.SimpleNamespace(pid=1)],
        nvmlDeviceGetClockInfo=lambda _, which: {0: 1980, 2: 3201}[which],
        nvmlDeviceGetTemperature=lambda *_: 42,
        nvmlDeviceGetPowerUsage=lambda _: 312_500,
        NVML_CLOCK_SM=0,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
    )
    monkeypatch.setitem(__import__("sys").modules, "pynvml", fake)
    reading = clocks.DeviceMonitor("cuda", "uuid").read()
    assert reading.throttle == "sw_power_cap+hw_thermal"
    assert (reading.power_w, reading.other_processes, reading.memory_clock_mhz) == (312.5, 1, 3201.0)


def test_settings_withhold_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "hidden")
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    monkeypatch.setenv("HOME_SWEET", "not steering anything")
    seen = settings()
    assert seen["VLLM_API_KEY"] == "(withheld)"
    assert seen["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert "HOME_SWEET" not in seen


def test_code_is_identified_with_and_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = code_state(tmp_path)
    assert state["commit"] is None
    assert state["source_sha256"] == source_hash(Path(rcatools.__file__).parent)
    monkeypatch.setenv("RCATOOLS_COMMIT", "abcdef1234")
    assert code_state(tmp_path)["commit"] == "abcdef1234"
    assert code_state(tmp_path)["declared"] is True
    monkeypatch.setenv("RCATOOLS_COMMIT", "not a commit; rm")
    assert code_state(tmp_path)["commit"] is None
