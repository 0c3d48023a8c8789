"""What settings were called: the table of old names, and recorded results of that time."""

import itertools
import json
from pathlib import Path

import pytest

from e3rl.experiments.agents import AGENTS
from e3rl.experiments.deterministic import DETERMINISTIC_EXPERIMENTS
from e3rl.experiments.lock import LOCK_EXPERIMENTS
from e3rl.experiments.practised import PRACTISED_EXPERIMENTS
from e3rl.experiments.stopping import STOPPING_EXPERIMENTS
from e3rl.models.factored import Factored
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.old_names import OLD_NAMES, stored_config
from e3rl.neural.presets import PRESETS
from e3rl.planners import EXPLOITERS, PLANNERS
from e3rl.planners.exploit_dqn import OfflineDqn
from e3rl.planners.graph_search import GraphSearch
from e3rl.planners.mcts import TreeSearch
from e3rl.runs.renamed import current_names
from e3rl.runs.settings import as_dict, changed, settings_of
from e3rl.types import UserError

FLAT = (
    "explore_ratio", "explore_episodes", "episodes_per_epoch", "epsilon", "uniform_transitions", "family", "clock",
    "ensemble_size", "hidden", "conditioning", "mean_over_bits", "prior_weight", "reward_head", "snap",
    "model_updates", "model_batch", "unroll", "model_learning_rate", "gradient_clip", "recent_share", "ending_share",
    "planner", "distance", "reward_scale", "value_updates", "value_batch", "value_learning_rate", "value_target_rate",
    "value_discount", "value_heads", "nodes", "frontier", "exit_utility", "top_share", "playouts", "particles", "ucb",
    "leaf", "choice", "common_noise", "from_samples", "exploit", "exploit_updates", "exploit_decay", "snapshots",
    "huber", "caution", "exploit_rounds", "round_episodes", "round_updates", "dqn_batch", "dqn_learning_rate",
    "dqn_discount", "dqn_target_period", "dqn_ending_share", "dqn_clipped", "dqn_heads", "evaluation_episodes",
)  # fmt: skip
"""Every setting of Neural-E³ while there was one flat table of them."""


def named(changes, settings=None):
    return current_names(settings or NeuralE3Config(), changes, OLD_NAMES)


def test_every_old_name_is_in_the_table_or_still_the_same():
    now = {path for path in settings_of(NeuralE3Config()) if "." not in path}
    assert [name for name in FLAT if name not in OLD_NAMES and name not in now] == []
    assert [name for name in OLD_NAMES if name not in FLAT] == []
    assert not OLD_NAMES.keys() & now  # a name means one thing


@pytest.mark.parametrize("algo", AGENTS)
def test_every_name_in_a_table_leads_somewhere(algo):
    """To settings that exist, whichever parts have to be chosen for it."""
    agent = AGENTS[algo]
    begin = agent.settings()
    parts = {
        field: metadata["registry"]
        for field, metadata in ((f.name, f.metadata) for f in begin.__dataclass_fields__.values())
        if "registry" in metadata
    }
    there, plain = set(), set()
    for names in itertools.product(*parts.values()):
        chosen = dict(zip(parts, names, strict=True))
        try:
            paths = set(settings_of(changed(begin, chosen)))
        except UserError:  # parts that do not go together
            continue
        plain |= paths
        there |= {
            path.replace(f"{part}.", f"{part}[{name}].", 1) for part, name in chosen.items() for path in paths
        }
    missing = [entry for entries in agent.renamed.values() for entry in entries if entry not in there | plain]
    assert missing == []


@pytest.mark.parametrize(
    ("changes", "now"),
    [
        ({"explore_ratio": "3"}, {"explore.ratio": "3"}),
        ({"hidden": "8"}, dict.fromkeys(["model.hidden", "planner.value.hidden", "exploit.value.hidden"], "8")),
        ({"planner": "graph", "hidden": "8"}, {"planner": "graph", "model.hidden": "8", "exploit.value.hidden": "8"}),
        ({"family": "mlp", "distance": "squared"}, {"model": "mlp", "utility": "squared"}),
        ({"value_batch": 4}, {"planner.value.batch": 4, "exploit.value.batch": 4}),
        ({"value_batch": 4, "exploit": "dqn"}, {"planner.value.batch": 4, "exploit": "dqn"}),
        ({"exploit": "dqn", "dqn_batch": 4}, {"exploit": "dqn", "exploit.value.batch": 4}),
        ({"exploit_updates": 4}, {"exploit.value.updates": 4}),
        ({"hidden": 8, "model.hidden": 9},
         {"model.hidden": 9, "planner.value.hidden": 8, "exploit.value.hidden": 8}),
        ({"fit.members": 3, "clock": False}, {"fit.members": 3, "clock": False}),
    ],
)  # fmt: skip
def test_old_names_are_taken_for_todays(changes, now):
    found, lines = named(changes)
    assert found == now
    assert len(lines) == len([name for name in changes if name in OLD_NAMES])
    changed(NeuralE3Config(), found)


def test_a_line_says_what_a_setting_is_called_now():
    _, lines = named({"family": "mlp", "hidden": "8", "clock": "true", "distance": "squared"})
    assert lines == [
        "family is now called model",
        "distance is now called utility",
        "hidden is now called model.hidden and planner.value.hidden and exploit.value.hidden",
    ]


@pytest.mark.parametrize(
    ("settings", "changes", "message"),
    [
        (None, {"nodes": 3}, "nodes is now called planner.nodes or exploit.nodes, which the parts chosen here do not"),
        (None, {"dqn_batch": 3}, "dqn_batch is now called exploit.value.batch, which the parts chosen here do not"),
        (NeuralE3Config(exploit=GraphSearch()), {"exploit_updates": 3}, "exploit_updates is now called exploit.value."),
        (None, {"planner": "graph", "playouts": 3}, "playouts is now called planner.playouts or exploit.playouts, wh"),
        (NeuralE3Config(model=Factored()), {"conditioning": "gate"}, "conditioning is now called model.conditioning, "),
    ],
)  # fmt: skip
def test_a_name_whose_part_is_not_chosen_is_one_line(settings, changes, message):
    with pytest.raises(UserError, match=message) as raised:
        named(changes, settings)
    assert "\n" not in str(raised.value)


# Results that were recorded under the old names.

RESULTS = Path(__file__).parents[2] / "results"
UNUSED = {"lock-halved/h5": {"planner.value.hidden": 50}}
"""Where what was recorded differs from today's preset in something that nothing reads: a tree search that rolls out at
its leaves has no value there."""


def recorded():
    """What is said about every result of Neural-E³."""
    found = []
    for path in sorted(RESULTS.glob("*/*.json")):
        about = json.loads(path.read_text())
        config = about.get("config") if "experiment" in about else None
        if isinstance(config, dict) and config.keys() & {"explore", "explore_ratio"}:
            found.append(pytest.param(about, id=path.stem))
    return found


RECORDED = recorded()
EXPERIMENTS = {
    **LOCK_EXPERIMENTS,
    **DETERMINISTIC_EXPERIMENTS,
    **PRACTISED_EXPERIMENTS,
    **STOPPING_EXPERIMENTS,
}


@pytest.mark.parametrize("about", RECORDED)
def test_a_recorded_configuration_is_its_preset_and_its_changes(about):
    name, settings = about["experiment"], about["settings"]
    experiment = EXPERIMENTS[name]
    preset = PRESETS[experiment.config]  # the lock's was called e3rl before there was a better one
    assert settings["config"] == experiment.config or experiment.config == "e3rl-budgets"
    budget = {"fit.repulsion": settings["repulsion"]} if settings.get("repulsion") else {}
    if "ratios" in settings:
        budget["explore.ratio"] = max(settings["ratios"])
    elif settings.get("ratio"):
        budget["explore.ratio"] = settings["ratio"]
    elif "budgets" in settings:
        budget["explore.episodes"] = max(settings["budgets"])
        if not settings.get("ends"):
            budget["explore.epsilon_share"] = 0.0
    wanted = changed(preset, {**dict(getattr(experiment, "changes", ())), **budget, **UNUSED.get(name, {})})
    if "budgets" in settings and not settings.get("ends") and "planner.tried" in settings_of(wanted):
        wanted = changed(wanted, {"planner.tried": 0.0})  # what can end by itself does not do so there
    assert stored_config(about["config"]) == wanted
    # What the result itself says was changed, under whatever names, is part of it.
    changes, _ = named(dict(settings.get("changes", ())), preset)
    assert changed(wanted, changes) == wanted
    assert stored_config(as_dict(wanted)) == wanted  # as today's results are read


def test_there_are_recorded_configurations():
    assert len(RECORDED) >= 20


def test_runs_of_before_a_setting_are_read_and_resumed_as_having_done_without_it():
    """Their config.json does not name it, and neither does that of the same settings today."""
    config = NeuralE3Config(model=Factored())
    stored = as_dict(config)
    for group, name in (
        ("explore", "update_every"),
        ("fit", "reward_units"),
        ("fit", "finishing"),
        ("model", "one_hot"),
    ):
        assert name not in stored[group]
    assert stored_config(stored) == config
    changes = {"explore.update_every": 4, "fit.reward_units": True, "model.one_hot": True}
    assert stored_config(as_dict(changed(config, changes))) == changed(config, changes) != config


LATER = ("states", "unified")
"""Parts that came after the time of one flat table."""


def test_what_an_old_configuration_did_not_look_at():
    """A caution about values where there are none; a leaf's value where the search exploits and has none."""
    old = {
        "exploit": "dqn",
        "caution": 0.05,
        "dqn_batch": 7,
        "exploit_updates": 10,
        "snapshots": 2,
        "huber": 3.0,
    }
    config = stored_config(old)
    assert config.utility.caution == 0.0
    assert isinstance(config.exploit, OfflineDqn)
    assert (config.exploit.value.batch, config.exploit.snapshots, config.exploit.value.huber) == (7, 2, 3.0)
    searched = stored_config({"planner": "mcts", "exploit": "mcts", "leaf": "value", "playouts": 9})
    assert isinstance(searched.planner, TreeSearch)
    assert isinstance(searched.exploit, TreeSearch)
    assert (searched.planner.leaf, searched.exploit.leaf) == ("value", "rollout")
    assert (searched.planner.playouts, searched.exploit.playouts) == (9, 9)


@pytest.mark.parametrize("planner", [name for name in PLANNERS if name not in LATER])
@pytest.mark.parametrize("exploit", [name for name in EXPLOITERS if name not in LATER])
def test_old_configurations_of_every_part_are_read(planner, exploit):
    """All of them had all settings, whether a part looked at them or not."""
    flat = {
        "planner": planner, "exploit": exploit, "hidden": 9, "nodes": 30, "playouts": 3, "value_batch": 5,
        "dqn_batch": 6, "value_updates": 7, "exploit_updates": 8, "clock": True, "evaluation_episodes": 4,
    }  # fmt: skip
    config = stored_config(flat)
    assert PLANNERS.name_of(type(config.planner)) == planner
    assert EXPLOITERS.name_of(type(config.exploit)) == exploit
    assert (config.model.hidden, config.evaluation_episodes) == (9, 4)
    values = {
        path: value
        for path, value in paths_of(config)
        if path.endswith(("batch", "updates", "nodes", "playouts"))
    }
    wanted = {
        "value": {"planner.value.batch": 5, "planner.value.updates": 7},
        "graph": {"planner.nodes": 30},
        "mcts": {"planner.value.batch": 5, "planner.value.updates": 7, "planner.playouts": 3},
        "uniform": {},
    }[planner] | {
        "value": {"exploit.value.batch": 5, "exploit.value.updates": 8},
        "dqn": {"exploit.value.batch": 6, "exploit.value.updates": 8},
        "graph": {"exploit.nodes": 30},
        "mcts": {"exploit.value.batch": 5, "exploit.playouts": 3},
    }[exploit]  # fmt: skip
    assert values.items() >= wanted.items()


def paths_of(settings):
    for path in settings_of(settings):
        value = settings
        for name in path.split("."):
            value = getattr(value, name)
        yield path, value
