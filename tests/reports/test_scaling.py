"""Exponents that are known, bounds by hand, and files that are something else."""

import json

import pytest

from e3rl.reports import scaling
from e3rl.types import UserError


def saved(tmp_path, kernel="plan/K", power=2.0, flops=0.5, moved=0.1):
    rows = [
        {
            "kernel": kernel, "size": size, "ours_s": 1e-3 * size**power, "memory_bytes": 5_000_000 * size,
            "flops_share": flops, "bytes_share": moved,
        }
        for size in (1, 10, 100)
    ]  # fmt: skip
    measured = {"peaks": {"gflops": 98.0, "copy_gb_s": 11.0}, "device": "cpu"}
    (tmp_path / scaling.FILE).write_text(json.dumps({"rows": rows, "measured": measured}))


def test_the_exponent_of_a_power(tmp_path):
    saved(tmp_path)
    head, _, line = scaling.table(tmp_path)
    assert "of 98 GFLOP/s | of 11 GB/s" in head
    grows = "| tree search | K = 1 to 100 | 1 ms to 10 s | 2.00 (2.00) | 5 MB to 500 MB | 1.00 "
    assert line == f"{grows}| 50% | 10% | arithmetic |"


@pytest.mark.parametrize(
    ("flops", "moved", "bound"),
    [
        (0.5, 0.3, "arithmetic"),
        (0.1, 0.3, "memory"),
        (0.2, 0.2, "latency"),
        (None, 0.9, "memory"),
        (None, None, "–"),
    ],
)
def test_what_bounds(tmp_path, flops, moved, bound):
    saved(tmp_path, flops=flops, moved=moved)
    [curve], _ = scaling.read(tmp_path)
    assert curve.bound == bound


def test_it_is_drawn(tmp_path, capsys):
    saved(tmp_path)
    scaling.main(tmp_path)
    assert (tmp_path / scaling.PICTURE).stat().st_size > 1_000
    assert "tree search" in capsys.readouterr().out


def test_other_files(tmp_path):
    with pytest.raises(UserError, match="is not what"):
        scaling.read(tmp_path)
    (tmp_path / scaling.FILE).write_text("{}")
    with pytest.raises(UserError, match="is not what"):
        scaling.read(tmp_path)
