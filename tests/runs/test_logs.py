"""What TensorBoard gets to see: the rows of metrics.csv, whole after an interruption too."""

import math
import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest
from scripted import Echo, EchoConfig
from tiny import LOCK

from e3rl.runs.folder import read_metrics
from e3rl.runs.logs import open_log
from e3rl.types import UserError

OPTIONS = {"horizon": 3, "noise_bits": 1, "seed": 2}


class Writer:
    """In place of tensorboardX's."""

    opened: ClassVar = []

    def __init__(self, place, purge_step, flush_secs):
        self.place, self.purge_step, self.scalars, self.closed = place, purge_step, {}, False
        self.opened.append(self)

    def add_scalar(self, tag, value, step):
        assert not math.isnan(value)
        self.scalars.setdefault(tag, {})[step] = value

    def close(self):
        self.closed = True


@pytest.fixture
def writers(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=Writer))
    monkeypatch.setattr(Writer, "opened", [])
    return Writer.opened


def agent():
    return Echo(LOCK, EchoConfig(), seed=5, env_options=OPTIONS)


def assert_as_in_the_table(writer, folder):
    rows = read_metrics(folder)
    assert writer.place == str(folder / "tensorboard")
    assert writer.closed
    assert set(writer.scalars) == {f"{name}/train" for name in ("env_steps", "return", "length", "seconds")}
    for name in ("env_steps", "return", "length"):
        wanted = {int(row["episode"]): pytest.approx(float(row[name])) for row in rows}
        assert writer.scalars[f"{name}/train"] == wanted


def test_the_columns_of_the_table_by_phase(writers, tmp_path):
    agent().learn(tmp_path, log="tensorboard")
    [writer] = writers
    assert_as_in_the_table(writer, tmp_path)


def test_a_resumed_run_is_whole_and_hides_what_was_written_before(writers, tmp_path):
    def stop_after_three(progress):
        return progress.episode < 3

    agent().learn(tmp_path, callback=stop_after_three, log="tensorboard")
    agent().learn(tmp_path, resume=True, log="tensorboard")
    first, second = writers
    assert first.closed
    assert list(first.scalars["return/train"]) == [1, 2, 3]
    assert second.purge_step == 1
    assert_as_in_the_table(second, tmp_path)


def test_without_the_package_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UserError, match=r'not installed: pip install "e3rl\[tensorboard\]"'):
        agent().learn(tmp_path / "run", log="tensorboard")
    assert not (tmp_path / "run").exists()


def test_what_is_refused(writers):
    with pytest.raises(UserError, match=r"give out=\.\.\. with log=\.\.\."):
        agent().learn(log="tensorboard")
    with pytest.raises(UserError, match="unknown log 'wandb'; known: tensorboard"):
        open_log("wandb")


def test_with_the_package_itself(tmp_path):
    pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
    agent().learn(tmp_path, log="tensorboard")
    assert list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))
