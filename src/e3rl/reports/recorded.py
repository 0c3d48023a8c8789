"""A Neural-E³ run read back from its folder: models and experience as they were at its last checkpoint."""

from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from e3rl.envs.adapter import one_line
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.blame import RAISED
from e3rl.envs.opening import Opened, open_environment
from e3rl.experiments.agents import AGENTS
from e3rl.experiments.names import task_name
from e3rl.models.base import Problem
from e3rl.models.ensemble import Ensemble
from e3rl.neural.agent import NeuralE3
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.practice import exploration_starts, saved_shapes
from e3rl.neural.slots import OneSeed
from e3rl.replay import Replay
from e3rl.runs.agent import read_config
from e3rl.runs.checkpoint import load_arrays, load_tree
from e3rl.runs.folder import RunFolder, read_about
from e3rl.types import UserError


class Recorded(NamedTuple):
    env_id: str
    env_options: dict[str, Any]
    env: AbstractEnvironment | None
    """None where the environment runs in Python."""
    config: NeuralE3Config
    problem: Problem
    members: Ensemble
    """The models after the last complete epoch."""
    replay: Replay
    """Everything seen while exploring."""

    @property
    def size(self) -> int:
        return int(self.replay.size)

    @property
    def name(self) -> str:
        """Such as "MountainCar", for ours and Gymnasium's alike."""
        return self.env_id.removeprefix("e3rl/").partition("-")[0]

    @property
    def task(self) -> str:
        """For titles."""
        return task_name(self.env_id, self.env_options)

    @property
    def episode(self) -> Int[np.ndarray, " n"]:
        """Which episode each filled row belongs to, from 0."""
        return np.cumsum(np.asarray(self.replay.rows.time)[: self.size] == 0) - 1

    @property
    def start(self) -> int:
        """The row of the last epoch's first observation, from which pictures of planning plan."""
        return min(int(self.replay.recent), self.size - 1)


def read_run(path: Path) -> Recorded | None:
    """The run in `path`; None where there is nothing to draw from: an agent without models, no checkpoint yet or one of
    an earlier version, an environment that cannot be made again. A damaged file raises a `UserError`."""
    about, folder = read_about(path), RunFolder(path)
    agent = AGENTS[about["algo"]] if about.get("algo") in AGENTS else None
    if agent is None or not issubclass(agent, NeuralE3) or not about.get("env") or not folder.state.is_file():
        return None
    try:
        about = read_config(path)
        config, options = agent.stored_config(path, about), about["env_options"]
        opened = _made_again(about["env"], options)
        one = OneSeed(opened.spec, config)
    except (KeyError, TypeError, UserError):
        return None
    # Raises where the file is damaged, as opposed to one that does not fit.
    _, said = load_arrays(folder.state)
    try:
        (models, _, replay, *_), _ = load_tree(folder.state, saved_shapes(one, said))
    except UserError:
        return None
    starts = exploration_starts(np.asarray(replay.rows.time)[: int(replay.size)], said)
    if starts[-1] < replay.size:
        last = starts[-1 - config.explore.per_epoch :][0]
        replay = replay._replace(size=jnp.asarray(starts[-1]), recent=jnp.asarray(last))
    run = Recorded(about["env"], options, opened.functional, config, one.problem, models.members, replay)
    return run if run.size else None


def _made_again(env_id: str, options: dict[str, Any]) -> Opened:
    """The environment; one that runs in Python is closed at once, since only its spaces are wanted."""
    try:
        opened = open_environment(env_id, options)
    except RAISED as error:  # whatever the author of an environment lets escape
        raise UserError(f"{env_id} cannot be made: {one_line(error)}") from error
    opened.close()
    return opened
