"""Reasons of tile configurations against numbers that a hand can follow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from vime_samples import DEVICE, made_up

from rcatools.diagnosis import decode_product as dp
from rcatools.diagnosis import tile_reasons as tr
from rcatools.experiment.product_recording import write_product_recording
from rcatools.recording import open_recording
from rcatools.report import vime_products


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> dp.ProductData:
    folder = tmp_path_factory.mktemp("tiles")
    (folder / "x.json").write_text(json.dumps(made_up()))
    write_product_recording(folder / "x.json", folder / "made-up")
    return dp.load_product(open_recording(folder / "made-up"))


def test_what_a_configuration_puts_to_work_by_hand(product: dp.ProductData) -> None:
    work = tr.at_work(product).set_index(["shape", "rows", "arm"])
    # qkv, 8 rows: 1536 columns in tiles of 32 (64), 4 chunks; by the sample's rule 8 (4) programs fit one of 132 SMs
    default, published = work.loc[("qkv", 8, "default")], work.loc[("qkv", 8, "specialised")]
    assert (default["programs"], published["programs"]) == (192, 96)
    assert (default["programs_per_sm"], published["programs_per_sm"]) == (8, 4)
    assert default["waves"] == pytest.approx(192 / (8 * 132))
    assert (default["busy_share"], published["busy_share"]) == (1.0, 96 / 132)
    assert default["buffer_bytes"] == 192 * 2 * 64 * (16 + 32)
    assert published["buffer_bytes"] == 96 * 2 * 64 * (32 + 64)
    # 64 rows: the default's 16-row tiles ask for each weight four times, the published 32-row tiles twice
    assert work.loc[("qkv", 64, "default"), "weight_reads"] == 4
    assert work.loc[("qkv", 64, "specialised"), "weight_reads"] == 2
    # no more programs at work than fit the card
    assert work.loc[("lm_head", 64, "default"), "buffer_bytes"] == 8 * 132 * 2 * 64 * (16 + 32)


def test_four_stages_are_three_tiles_of_load_buffers(product: dp.ProductData) -> None:
    work = tr.at_work(product).set_index(["shape", "rows", "arm"])
    deeper, plain = (work.loc[("qkv", 8, arm), "buffer_bytes"] for arm in ("default_deeper", "default"))
    assert deeper == 3 * plain


def test_each_published_change_alone_is_read_from_the_grid(product: dp.ProductData) -> None:
    singles = tr.single_changes(product).set_index(["shape", "rows", "factor"])["ratio"]
    # the made-up grid: 32 rows per tile 1.1, 64 columns 1.2, 128 columns 1.8, four warps 0.9
    assert singles[("gate_up", 8, "block_m")] == pytest.approx(1.1)
    assert singles[("gate_up", 8, "block_n")] == pytest.approx(1.2)
    assert singles[("lm_head", 64, "block_n")] == pytest.approx(1.8)
    assert singles[("lm_head", 64, "warps")] == pytest.approx(0.9)
    assert ("lm_head", 64, "block_m") not in singles.index  # the published head keeps 16 rows per tile
    assert "o_proj" not in singles.index.get_level_values("shape")  # the published rule keeps the default


def test_rank_correlations_tell_what_goes_with_time(product: dp.ProductData) -> None:
    found = tr.rank_correlations(product).set_index(["shape", "rows"])
    # in the made-up grid more stages halve the time and larger tiles lengthen it, so buffers go with less time and
    # fewer programs with more; at 8 rows every tile asks for the weights once
    row = found.loc[("qkv", 8)]
    assert row["configurations"] == 24
    assert row["programs"] < 0
    assert row["buffer_bytes"] < 0
    assert row["weight_bytes"] != row["weight_bytes"]
    assert found.loc[("qkv", 64), "weight_bytes"] < 0


def test_without_the_number_of_multiprocessors_nothing_is_said(tmp_path: Path) -> None:
    document = made_up() | {"device": {k: v for k, v in DEVICE.items() if k != "multiprocessors"}}
    (tmp_path / "x.json").write_text(json.dumps(document))
    write_product_recording(tmp_path / "x.json", tmp_path / "made-up")
    data = dp.load_product(open_recording(tmp_path / "made-up"))
    assert len(tr.at_work(data)) == len(tr.rank_correlations(data)) == 0
    assert vime_products.work_table(data).rows == ()
    assert len(tr.single_changes(data)) > 0


def test_the_tables_name_their_device(product: dp.ProductData) -> None:
    assert "On a card" in vime_products.work_table(product).note
    assert "a card, 4 processes" in vime_products.product_cells(product).note
    assert "4 processes, a card" in vime_products.product_forest(product, 8).description
