"""docs/extending.md: every block of it is run, and every part built there is trained with. Also the tables of settings
that docs/hooks.py makes."""

import dataclasses
import importlib
import importlib.util
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import e3rl
from e3rl.baselines.ppo import BONUSES
from e3rl.cli import main, parser
from e3rl.cli.training import environment
from e3rl.envs.opening import open_environment
from e3rl.envs.registration import ENVIRONMENTS, register
from e3rl.experiments.agents import AGENTS, load
from e3rl.models import FAMILIES
from e3rl.models.base import Prediction, Problem
from e3rl.models.fit import ModelSet
from e3rl.neural.presets import PRESETS
from e3rl.planners import EXPLOITERS, PLANNERS, UTILITIES
from e3rl.planners.base import Policy
from e3rl.replay import Scale
from e3rl.reports.settings_tables import departures
from e3rl.runs.settings import changed, settings_of

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "extending.md"
REGISTRIES = (PLANNERS, EXPLOITERS, UTILITIES, FAMILIES, AGENTS, BONUSES, ENVIRONMENTS)
ROOMS = "my-parts/TwoRooms-v0"
CORRIDOR = {"side": 1, "time_limit": 6}
"""Three cells in a row, the last one of which pays 1."""


def fenced(text: str) -> list[tuple[str, str]]:
    """The blocks of a page, each with the word after its opening fence."""
    blocks: list[tuple[str, str]] = []
    inside = None
    for line in text.splitlines():
        if line.startswith("```"):
            if inside is None:
                inside, word = [], line[3:].strip()
            else:
                blocks.append((word, "\n".join(inside) + "\n"))
                inside = None
        elif inside is not None:
            inside.append(line)
    assert inside is None, "a block is not closed"
    return blocks


BLOCKS = fenced(PAGE.read_text(encoding="utf-8"))
FILES = {
    text.splitlines()[0].removeprefix("# "): text
    for word, text in BLOCKS
    if word == "python" and text.startswith("# my_parts/")
}
SCRIPTS = [text for word, text in BLOCKS if word == "python" and not text.startswith("# my_parts/")]
COMMANDS = [line for word, text in BLOCKS if not word for line in text.splitlines()]
[POINTS] = [tomllib.loads(text)["project"]["entry-points"] for word, text in BLOCKS if word == "toml"]


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """The page's package on the path, as installing it would put it there."""
    folder = tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    about = folder / "my_parts-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-parts\nVersion: 0.1\n")
    lines = [
        line
        for group, points in POINTS.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    _look_again()
    register()
    # What is trained here is tiny and compiled once, so that compiling is all that takes time.
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_parts"]:
        del sys.modules[name]
    gymnasium.registry.pop(ROOMS)
    _look_again()


def _look_again() -> None:
    for registry in REGISTRIES:
        vars(registry).pop("_offered", None)


def test_every_group_of_entry_points_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    for registry in REGISTRIES:
        assert f"`{registry.group}`" in text
    assert set(POINTS) <= {registry.group for registry in REGISTRIES}


def test_the_parts_are_found_by_their_names():
    for registry in REGISTRIES:
        for name, value in POINTS.get(registry.group, {}).items():
            module, _, attribute = value.partition(":")
            part = registry.called(name)
            assert part is getattr(importlib.import_module(module), attribute)
            assert registry.name_of(part) == name


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_run(script):
    exec(compile(script, PAGE, "exec"), {})


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_name_settings_that_exist(command):
    program, *words = shlex.split(command)
    assert program == "e3rl"
    args = parser().parse_args(words)
    options = {name: json.loads(value) for name, value in (item.split("=") for item in args.env_options)}
    opened = open_environment(environment(args.env, options), options)
    agent = AGENTS.called("neural-e3" if args.algo == "auto" else args.algo)
    preset = agent.presets["e3rl"] if args.algo == "neural-e3" else None
    settings = agent.configured(opened, preset, dict(item.split("=") for item in args.set))
    assert settings != agent.configured(opened, preset) or not args.set


def test_planner_utility_family_exploiter_and_environment_learn_together(tmp_path, capsys):
    """The whole way: by names, on the command line, into a run folder and back."""
    explore = ["explore.episodes=60", "explore.per_epoch=20", "evaluation_episodes=5"]
    model = ["model=linear", "fit.members=2", "fit.updates=200", "fit.batch=16", "fit.learning_rate=0.03",
             "fit.prior_weight=0.01"]  # fmt: skip
    planner = ["planner=shooting", "planner.plans=16", "planner.depth=4", "utility=variance"]
    exploit = ["exploit=monte-carlo", "exploit.updates=1000", "exploit.hidden=16"]
    where = ["--env", *(f"{name}={value}" for name, value in CORRIDOR.items())]
    words = ["--config", "e3rl", "--out", str(tmp_path), "--set", *explore, *model, *planner, *exploit]
    assert main(["train", ROOMS, *where, *words]) == 0
    assert "return 1.000" in capsys.readouterr().out
    config = json.loads((tmp_path / "config.json").read_text())["config"]
    assert [config[name]["name"] for name in ("model", "utility", "planner", "exploit")] == [
        "linear", "variance", "shooting", "monte-carlo",
    ]  # fmt: skip
    agent = load(tmp_path)
    obs, _ = (env := gymnasium.make(ROOMS, **CORRIDOR)).reset(seed=0)
    for _ in range(CORRIDOR["time_limit"]):
        obs, reward, ended, *_ = env.step(agent.predict(obs))
        if ended:
            break
    assert reward == 1.0


def test_the_baseline_learns(tmp_path):
    agent = AGENTS["reinforce"](ROOMS, env_options=CORRIDOR, config=_settings(total_steps=10_000))
    summary = agent.learn(out=tmp_path)
    assert summary["exploit_return_mean"] == 1.0
    assert (load(tmp_path).evaluate(3) == 1.0).all()


def _settings(**changes):
    return AGENTS["reinforce"].settings(copies=8, steps=16, evaluation_episodes=5, **changes)


def test_the_environment_is_one_to_gymnasium_too():
    check_env(gymnasium.make(ROOMS, side=2).unwrapped, skip_render_check=True)
    env = e3rl.make(ROOMS, side=3)
    (place, time), _ = env.reset(jax.random.key(0))
    # Right into the wall, down to the door's row, through it, down to the corner's, on to the corner.
    walk, rewards = [1, 1, 1, 2, 1, 1, 2, 1, 1], []
    for action in walk:
        (place, time), obs, reward, terminated, _ = env.step(
            jax.random.key(0), (place, time), jnp.array(action, jnp.int32)
        )
        rewards.append(float(reward))
    assert rewards == [0.0] * 8 + [1.0]
    assert bool(terminated)
    assert obs.tolist() == [2, 6]
    assert env.render((place, time)).shape == (48, 112, 3)


def test_the_utility_is_a_variance():
    random = np.random.default_rng(0)
    obs, reward = random.random((4, 3), np.float32), random.random(4, np.float32)
    predicted = Prediction(jnp.asarray(obs), jnp.asarray(reward), jnp.zeros(4))
    expected = sum(obs[:, d].var() for d in range(3)) + 0.5 * reward.var()
    variance = UTILITIES["variance"](reward_scale=0.5, caution=0.0)
    assert float(variance.explore(predicted)) == pytest.approx(expected, rel=1e-5)
    assert float(variance.exploit(predicted)) == pytest.approx(reward.mean(), rel=1e-5)


def test_the_planner_finds_the_best_of_its_sequences():
    """Against a loop over the same random sequences, member by member."""
    problem = Problem(open_environment(ROOMS, CORRIDOR).spec, clock=True)
    keys = jax.random.split(jax.random.key(1), 2)
    make = FAMILIES["linear"](deviation=0.5).make(problem)
    members = jax.vmap(make)(keys)
    start, utility = jnp.array([1.0, 1.0, 0.0, 0.0]), UTILITIES["variance"]().explore
    planner, key = PLANNERS["shooting"](plans=6, depth=3), jax.random.key(2)
    policy = Policy(ModelSet(members, members, ()), None, Scale(jnp.zeros(4), jnp.ones(4)))
    found = planner.plan(policy, start, jnp.array(4, jnp.int32), key, utility, problem)
    plans = np.asarray(jax.random.randint(key, (6, 3), 0, problem.actions))
    worths = []
    for plan in plans:
        states, alive, total = [start, start], 1.0, 0.0
        for time, action in zip((4, 5, 6), plan, strict=True):
            told = [
                make(key)(state, jnp.array(int(action)), jnp.array(time))
                for key, state in zip(keys, states, strict=True)
            ]
            together = Prediction(*(jnp.stack(part) for part in list(zip(*told, strict=True))[:3]))
            total += alive * float(utility(together))
            alive *= 1.0 - float(together.termination.mean()) if time + 1 < 6 else 0.0
            states = [jnp.clip(each.obs, 0.0, 1.0) for each in told]
        worths.append(total)
    assert int(found.actions[0]) == plans[int(np.argmax(worths)), 0]
    assert float(found.value) == pytest.approx(max(worths), rel=1e-4)


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_departure_from_the_paper_has_a_row(hooks):

    def flat(value, path=""):
        if not dataclasses.is_dataclass(value):
            return {path: value}
        fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
        below = [flat(own, f"{path}.{name}" if path else name) for name, own in fields]
        return {path: type(value)} | {name: own for each in below for name, own in each.items()}

    for ours, theirs in hooks.PAPER.items():
        rows = list(departures(PRESETS[ours], PRESETS[theirs]))
        one, other = flat(PRESETS[ours]), flat(PRESETS[theirs])
        differ = {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}
        groups = {"exploit.value"}  # a group of settings has no row of its own
        assert {path for path, _, _ in rows} == differ - groups
        lines = "\n".join(hooks.from_the_paper(PRESETS))
        assert all(f"| `{path}` | {one} | {other} |" in lines for path, one, other in rows)


def test_every_setting_has_a_row(hooks):
    """Of every agent, with every part in its place."""
    rows = set(re.findall(r"^\| `([\w.]+)` \|", "\n".join(hooks.all_settings()), re.MULTILINE))
    for agent in AGENTS.values():
        settings = agent.settings()
        for field, registry in hooks.parts_of(agent.settings).items():
            for part in registry.values():
                paths = [f"{field}.{path}" for path in settings_of(part())]
                groups = {path.rpartition(".")[0] for path in paths}
                assert set(paths) - groups <= rows
        whole = set(settings_of(settings))
        assert whole - {path.rpartition(".")[0] for path in whole if "." in path} <= rows


def test_the_differences_of_a_preset_make_it_from_the_defaults(hooks):
    for agent in AGENTS.values():
        for preset in agent.presets.values():
            assert changed(agent.settings(), hooks.differences(preset)) == preset
