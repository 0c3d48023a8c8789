"""What things would take, found without allocating any of it, and what is said where it is too much."""

import dataclasses
import gc
import math

import jax
import jax.numpy as jnp
import pytest
from scripted import Echo
from tiny import LOCK, OPTIONS, TINY
from tiny_baselines import TINY_DQN, TINY_PPO

from e3rl import cli, memory
from e3rl.baselines import DQN, PPO
from e3rl.dreem.certify import make_problem
from e3rl.envs.opening import open_environment
from e3rl.envs.registration import build
from e3rl.memory import available, largest_step, refuse_too_large, size_of, words
from e3rl.neural.agent import NeuralE3
from e3rl.runs.settings import changed
from e3rl.tabular.agent import TabularE3
from e3rl.tabular.config import TabularE3Config
from e3rl.types import UserError

GIB = 2**30


@pytest.fixture
def one_gib(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: float(GIB))


def test_there_is_as_much_as_the_machine_says(monkeypatch, tmp_path):
    assert 2**20 < available() < math.inf
    for most, now, details, cached in memory.CGROUP_FILES:
        (tmp_path / most).parent.mkdir(exist_ok=True)
        (tmp_path / most).write_text("max\n" if most == "memory.max" else "5000000\n")
        (tmp_path / now).write_text("2000000\n")
        (tmp_path / details).write_text(f"anon 1\n{cached} 500000\nactive_file 7\n")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert available() == 3_500_000.0  # cached files give way
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "none")
    monkeypatch.setattr(memory, "_read", lambda path: "")
    assert available() > 2**20  # all that the machine has


def test_a_device_has_its_own(monkeypatch):
    class Device:
        def memory_stats(self):
            return {"bytes_limit": 100, "bytes_in_use": 30}

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    assert available() == 70.0
    monkeypatch.setattr(Device, "memory_stats", lambda self: None)
    assert available() > 100.0


def test_sizes_of_trees_and_of_what_is_made_on_the_way():
    tree = {"a": jnp.zeros((3, 4)), "b": jax.ShapeDtypeStruct((10**9, 10**9), jnp.int8), "c": 7}
    assert size_of(tree) == 48 + 10**18

    def program(x):
        def body(carry, row):
            wide = jnp.outer(row, jnp.ones(1000))  # [8, 1000] in every turn
            return carry + wide.sum(), row * 2.0

        total, rows = jax.lax.scan(body, 0.0, x)
        return total + rows.sum()

    assert largest_step(program, jax.ShapeDtypeStruct((5, 8), jnp.float32)) == 8 * 1000 * 4


@pytest.mark.parametrize(
    ("size", "said"),
    [(3 * 2**20, "3 MiB"), (1.5 * GIB, "1.5 GiB"), (2**41, "2 TiB"), (2**61, "2 EiB"), (1e40, "8.7e+21 EiB")],
)
def test_sizes_in_words(size, said):
    assert words(size) == said


def test_what_fits_and_what_does_not(one_gib):
    refuse_too_large("it", {"a": GIB / 2, "b": GIB / 2}, lambda: pytest.fail("not asked"))
    with pytest.raises(UserError) as raised:
        refuse_too_large("it", {"a": GIB, "b": 2 * GIB, "c": 1.0}, lambda: "b")
    assert (
        str(raised.value) == "it would take 3 GiB of memory (b 2 GiB, a 1 GiB), and there is 1 GiB: lower b"
    )


CASES = [
    (NeuralE3, TINY, {"model.hidden": 10**9}, "model.hidden"),
    (NeuralE3, TINY, {"fit.members": 10**9}, "fit.members"),
    (NeuralE3, TINY, {"explore.per_epoch": 10**9}, "explore.per_epoch"),
    (NeuralE3, TINY, {"evaluation_episodes": 10**9}, "evaluation_episodes"),
    (NeuralE3, TINY, {"fit.batch": 10**9}, "fit.batch"),
    (NeuralE3, TINY, {"fit.updates": 10**9}, "fit.updates"),
    (NeuralE3, TINY, {"exploit.value.batch": 10**9}, "exploit.value.batch"),
    (DQN, TINY_DQN, {"hidden": 10**9}, "hidden"),
    (DQN, TINY_DQN, {"capacity": 10**9}, "capacity"),
    (DQN, TINY_DQN, {"batch": 10**9}, "batch"),
    (DQN, TINY_DQN, {"capacity": 2 * 10**9, "copies": 2 * 10**8}, "capacity"),
    (PPO, TINY_PPO, {"copies": 10**9}, "copies"),
    (TabularE3, TabularE3Config(), {"members": 10**9}, "members"),
]


@pytest.mark.parametrize(("agent", "config", "changes", "lower"), CASES)
def test_every_algorithm_says_what_to_lower(agent, config, changes, lower, one_gib):
    opened = open_environment(LOCK, OPTIONS)
    with pytest.raises(UserError, match=r"this run would take .* and there is 1 GiB: lower (.*)") as raised:
        agent.refuse_too_large(opened, changed(config, changes))
    assert lower in str(raised.value).partition("lower ")[2].split(" or ")


@pytest.mark.parametrize("changes", [{"copies": 10**9, "capacity": 2**31 - 1, "steps": 1}, {"batch": 10**9}])
def test_environments_in_python_count_too(changes, one_gib):
    opened = open_environment("CartPole-v1")
    with pytest.raises(UserError, match="this run would take"):
        DQN.refuse_too_large(opened, changed(dataclasses.replace(TINY_DQN, clock=False), changes))
    opened.close()


def test_programs_of_the_defaults_are_not_looked_through(monkeypatch):
    """It takes a second or two before every run, and many updates in turn make no program large."""
    monkeypatch.setattr("e3rl.neural.memory.largest_step", lambda *_: pytest.fail("looked through"))
    opened = open_environment(LOCK, OPTIONS)
    NeuralE3.refuse_too_large(opened, NeuralE3.configured(opened))


def test_seeds_that_share_a_program_count_together(one_gib):
    opened = open_environment(LOCK, OPTIONS)
    NeuralE3.refuse_too_large(opened, TINY)
    with pytest.raises(UserError, match="lower --seeds"):
        NeuralE3.refuse_too_large(opened, TINY, 10**6)


def test_a_number_that_no_shape_can_have(one_gib):
    opened = open_environment(LOCK, OPTIONS)
    with pytest.raises(UserError, match=r"beyond what can be counted with|would take"):
        DQN.refuse_too_large(opened, changed(TINY_DQN, {"updates": 10**9, "total_steps": 10**9}))


def test_an_agent_that_does_not_know_is_let_through():
    assert Echo.memory(open_environment(LOCK, OPTIONS), None, 1, True) == {}


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("e3rl/CombinationLock-v0", {"horizon": 10**9}, "would take .* lower horizon"),
        ("e3rl/CombinationLock-v0", {"noise_bits": 10**9}, "would take .* lower noise_bits"),
        ("e3rl/Maze-v0", {"size": 20_000}, "would take .* lower size"),
        ("e3rl/Maze-v0", {"size": 10**9}, "size=1000000000"),
        ("e3rl/RandomMDP-v0", {"num_states": 10**6}, "the table would take .* lower the number of states"),
        ("e3rl/FactoredMDP-v0", {"num_factors": 40}, "states are too many for a table"),
        ("e3rl/CombinationLock-v0", {"horizon": 10**30}, r"horizon must be a whole number below 2\*\*31"),
        (
            "e3rl/CombinationLock-v0",
            {"noise_bits": 10**30},
            r"noise_bits must be a whole number below 2\*\*31",
        ),
    ],
)
def test_environments_that_are_too_large(env, options, message, one_gib):
    with pytest.raises(UserError, match=message):
        build(env, **options)


def test_problems_of_dreem(one_gib):
    with pytest.raises(UserError, match=r"this problem would take .* lower --models or --policies"):
        make_problem("random", 10**9, 4, 0)


def test_evaluation(one_gib):
    agent = NeuralE3(LOCK, TINY, env_options=OPTIONS)
    agent.policy = "trained"
    with pytest.raises(UserError, match=r"1000000000 episodes would take .* lower their number"):
        agent.evaluate(10**9)


def test_on_the_command_line_it_is_one_line_and_leaves_nothing(one_gib, tmp_path, capsys):
    argv = ["train", "lock", "--horizon", "3", "--algo", "dqn", "--out", str(tmp_path / "run")]
    for more in (["--set", "capacity=1e9"], ["--seeds", "1000000000"], ["--set", f"hidden={10**30}"]):
        assert cli.main([*argv, *more]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith("e3rl: error: ")
    assert not (tmp_path / "run").exists()


def test_nothing_is_kept_of_an_estimate():
    """Who trains in a loop makes one every time; JAX once remembered five shapes of each."""
    opened = open_environment(LOCK, OPTIONS)

    def shapes_after(times):
        for _ in range(times):
            DQN.memory(opened, TINY_DQN, lanes=1, computing=False)
        gc.collect()
        return sum(isinstance(each, jax.tree_util.PyTreeDef) for each in gc.get_objects())

    assert shapes_after(10) == shapes_after(5)
