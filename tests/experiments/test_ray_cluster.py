"""Cells on a real Ray cluster of two nodes: a worker is killed in one sweep, a whole node in another. Nothing is lost,
nothing is doubled, and what a cell gives does not depend on where it ran."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

import e3rl
from e3rl.cli.reproduction import reason, run_among_others
from e3rl.experiments.catalogue import IS_DONE
from e3rl.experiments.sweep import Task, sweep_here
from e3rl.experiments.sweep_on_ray import sweep_on_ray

CELLS = [
    f"baselines-lock/h{horizon}-{reward}-{algo}"
    for horizon in (5, 10)
    for reward in ("standard", "antishaped")
    for algo in ("dqn", "ppo-rnd")
]
MADE_BY = {"seconds", "command", "version", "commit", "python", "jax", "packages", "device", "machine"}
"""What may differ between two files with the same results."""

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """A head without processors, and two nodes with one worker each, at addresses of their own. 127.0.0.1 will not do:
    Ray takes it for whatever address the machine has elsewhere."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # where Ray leaves a token
    monkeypatch.setenv("PYTHONPATH", str(Path(e3rl.__file__).parents[1]))
    monkeypatch.setenv("E3RL_CHECKPOINT_SECONDS", "0")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    small = {"object_store_memory": 80 * 2**20}
    head = {"num_cpus": 0, "include_dashboard": False, "node_ip_address": "127.0.0.2", **small}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1, node_ip_address=f"127.0.0.{i}", **small) for i in (3, 4)]
    ray.init(cluster.address, _node_ip_address=head["node_ip_address"])
    cluster.wait_for_nodes()
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


def workers_at_work(out):
    """Processes that hold a run with a checkpoint."""
    for state in out.glob("unfinished/*/*/checkpoint/state.safetensors"):
        lock = state.parents[1] / ".lock"
        if lock.exists() and (words := lock.read_text().split()):
            yield int(words[0])


def parent_of(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def once_at_work(out, act):
    """Do something to the first process that has come as far as a checkpoint, in the background."""
    done = []

    def wait():
        while not done:
            for process in workers_at_work(out):
                act(process)
                done.append(process)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread, done


def data(folder):
    """Every file by its bytes, what it took and what made it aside."""
    files = {}
    for path in sorted(folder.iterdir()):
        files[path.name] = path.read_bytes()
        if path.suffix == ".json":
            files[path.name] = json.dumps(without(json.loads(path.read_text()), MADE_BY)).encode()
    return files


def without(about, names):
    if isinstance(about, dict):
        return {key: without(value, names) for key, value in about.items() if key not in names}
    return [without(value, names) for value in about] if isinstance(about, list) else about


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The same cells one after the other in this process."""
    out = tmp_path_factory.mktemp("here")
    sweep_here(tasks(out), run_among_others, reason, lambda line: None)
    return data(out)


def tasks(out):
    return [Task(cell, out, smoke=True) for cell in CELLS]


def nothing_lost_nothing_doubled(out, outcomes, said):
    assert sorted(outcome.cell for outcome in outcomes) == sorted(CELLS)
    assert [outcome.error for outcome in outcomes] == [None] * len(CELLS)
    assert len(said) == len(CELLS)
    assert not list(out.glob(".sweep-*"))
    assert not (out / "unfinished").exists()
    assert all(IS_DONE[cell](cell, out, (), True) for cell in CELLS)
    assert sorted(path.name for path in out.iterdir()) == sorted(
        f"{cell.replace('/', '-')}.{kind}" for cell in CELLS for kind in ("csv", "json")
    )


def test_a_worker_is_killed(nodes, here, tmp_path):
    out, said = tmp_path / "ray", []
    killer, killed = once_at_work(out, lambda process: os.kill(process, signal.SIGKILL))
    outcomes = sweep_on_ray(tasks(out), run_among_others, reason, said.append)
    killer.join(timeout=1)
    assert len(killed) == 1
    nothing_lost_nothing_doubled(out, outcomes, said)
    assert data(out) == here


def test_a_node_is_killed(nodes, here, tmp_path):
    """Its raylet and the workers that it has started, without a warning."""
    cluster, pair = nodes
    out, said, lost = tmp_path / "ray", [], []

    def kill_its_node(process):
        raylets = {node.all_processes["raylet"][0].process.pid: node for node in pair}
        node = raylets[parent_of(process)]
        lost.append(node)
        os.kill(process, signal.SIGKILL)
        cluster.remove_node(node, allow_graceful=False)

    killer, killed = once_at_work(out, kill_its_node)
    outcomes = sweep_on_ray(tasks(out), run_among_others, reason, said.append)
    killer.join(timeout=10)
    assert (len(killed), len(lost)) == (1, 1)
    nothing_lost_nothing_doubled(out, outcomes, said)
    assert data(out) == here
