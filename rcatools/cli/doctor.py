"""``rcatools doctor``: what this machine has, what is missing, and how many streams may run kernels."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

from rcatools.errors import InputError, UnavailableError

SUMMARY = "Say what this machine has and what is missing; fails if installing changed torch."
EXAMPLE = "rcatools doctor --streams"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--streams",
        action="store_true",
        help="measure after how many used streams each boundary between graph kernels costs more (needs a GPU)",
    )
    parser.add_argument(
        "--recording",
        metavar="DIR_OR_NAME",
        help="with --streams: answer from a recording instead of measuring",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Examine and print; exit code 2 when a problem was found."""
    if args.recording and not args.streams:
        raise InputError("--recording goes with --streams: add it, or leave --recording out")
    if args.streams:
        limit = stream_limit(args.recording)
        _print({"streams": limit.as_dict()} if args.json else None, _sentences(limit))
        return 0
    from rcatools.device.inspect import examine

    report = examine(_torch())
    _print(report if args.json else None, lines(report))
    problems = [item["text"] for item in report["findings"] if item["level"] == "problem"]
    if problems:
        raise UnavailableError(problems[0])
    return 0


def stream_limit(recording: str | None) -> Any:
    """The limit of used streams, measured here or from a recording.

    Raises:
        UnavailableError: there is no GPU to measure on.
    """
    from rcatools.experiment import streams

    if recording is not None:
        from rcatools.recording.reader import open_recording

        return streams.recorded_limit(open_recording(find_recording(recording)))
    from rcatools.device.backend import device_count, import_torch
    from rcatools.experiment.prepare import probe_device

    torch = import_torch()
    if device_count(torch) == 0:
        raise UnavailableError(
            "--streams needs a GPU, and this torch sees none; "
            "'--recording capture-stream-h200-rivals' answers from a recording"
        )
    device = probe_device("auto")["name"]
    print(f"measuring in {streams.PROCESSES} fresh processes", file=sys.stderr)
    return streams.measure_limit(torch, device, _progress)


def find_recording(name: str) -> Path:
    """A folder as given, or one of the embedded recordings by its name.

    Raises:
        InputError: neither exists.
    """
    from rcatools.experiment.arms import data_folder

    for place in (Path(name), data_folder() / "recordings" / name):
        if place.is_dir():
            return place
    known = sorted(file.parent.name for file in (data_folder() / "recordings").glob("*/manifest.json"))
    raise InputError(f"no recording at {name!r}; give a folder, or one of {', '.join(known) or 'none'}")


def lines(report: dict[str, Any]) -> list[str]:
    """The examination for people."""
    environment, torch, device = report["environment"], report["torch"], report["device"]
    text = [f"machine   {environment['os']}, {environment['machine']}, {environment['cpus']} CPUs"]
    text.append(
        f"python    {environment['python']}{' in a virtual environment' if report['virtual_environment'] else ''}"
    )
    if torch:
        text.append(f"torch     {torch['version']} ({torch['build']} build), {torch['devices']} GPUs visible")
    else:
        text.append("torch     not installed")
    if device:
        detail = ", ".join(
            str(part)
            for part in (device["name"], device["arch"], device["driver"] and f"driver {device['driver']}")
            if part
        )
        text.append(f"device    {device['backend']}: {detail}")
        clocks = report["clocks"]
        reading = clocks["reading"] or {}
        state = (
            f"readable ({reading['sm_clock_mhz']:.0f} MHz, throttle {reading['throttle']}, "
            f"{reading['other_processes']} other processes; {clocks['cost_us']:.1f} us a reading)"
            if clocks["readable"]
            else "not readable"
        )
        text.append(f"clocks    {state}")
    masks = ", ".join(f"{k}={v}" for k, v in report["masks"].items())
    text.append(f"masks     {masks or 'none'}")
    text.append(f"packages  {', '.join(name for name, there in report['packages'].items() if there)}")
    text.append(
        f"absent    {', '.join(name for name, there in report['packages'].items() if not there) or 'none'}"
    )
    text += [f"{item['level']:<9} {item['text']}" for item in report["findings"]]
    text.append("verdict   " + ("ready" if report["ok"] else "something must be mended first"))
    return text


def _sentences(limit: Any) -> list[str]:
    from rcatools.experiment.streams import sentences

    rows = [f"{'streams':>7}  {'us per boundary':>15}  {'range':>15}  processes"]
    rows += [
        f"{p['streams']:>7}  {p['us']:>15.3f}  {p['low']:>7.3f}-{p['high']:.3f}  {p['processes']:>9}"
        for p in limit.points
    ]
    return [*rows, *sentences(limit)]


def _print(document: dict[str, Any] | None, text: list[str]) -> None:
    from rcatools.cli.app import print_json

    if document is not None:
        print_json(document)
    else:
        print("\n".join(text))


def _progress(row: dict[str, Any]) -> None:
    print(f"process {row['process'] + 1}: {row.get('error') or 'done'}", file=sys.stderr)


def _torch() -> Any:
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch
