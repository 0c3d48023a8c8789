"""A Neural-E³ run read back from its folder: models and experience as they were at its last checkpoint."""

from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int

from e3rl.envs.adapter import make, one_line
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.vector import HostEnvironments
from e3rl.models.ensemble import Ensemble
from e3rl.neural.checkpoint import load_arrays, load_tree
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.lanes import Environment, Lanes, lanes_for
from e3rl.neural.run_folder import RunFolder, read_json
from e3rl.replay import Replay
from e3rl.types import UserError

ALGORITHMS = ("neural-e3", "ue2")


class Recorded(NamedTuple):
    env_id: str
    env_options: dict[str, Any]
    env: AbstractEnvironment | None
    """None where the environment runs in Python."""
    config: NeuralE3Config
    lanes: Lanes
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
    def episode(self) -> Int[np.ndarray, " n"]:
        """Which episode each filled row belongs to, from 0."""
        return np.cumsum(np.asarray(self.replay.rows.time)[: self.size] == 0) - 1

    @property
    def start(self) -> int:
        """The row of the last epoch's first observation, from which pictures of planning plan."""
        return min(int(self.replay.recent), self.size - 1)


def read_run(path: Path) -> Recorded | None:
    """The run in `path`; None where there is nothing to draw from: another algorithm, no checkpoint yet or one of an
    earlier version, an environment that cannot be made again. A damaged file raises a `UserError`."""
    about, folder = read_json(path / "config.json"), RunFolder(path)
    if about.get("algo") not in ALGORITHMS or not about.get("env") or not folder.state.is_file():
        return None
    load_arrays(folder.state)  # raises where the file is damaged, as opposed to one that does not fit
    try:
        config, options = NeuralE3Config(**about["config"]), about["env_options"]
        env = _made_again(about["env"], options)
        lanes = lanes_for(env, config)
        like = eqx.filter_eval_shape(lanes.fresh, jax.random.key(0))
        (models, _, replay), _ = load_tree(folder.state, like)
    except (KeyError, TypeError, UserError):
        return None
    functional = env if isinstance(env, AbstractEnvironment) else None
    run = Recorded(about["env"], options, functional, config, lanes, models.members, replay)
    return run if run.size else None


def _made_again(env_id: str, options: dict[str, Any]) -> Environment:
    """The environment; one that runs in Python is closed at once, since only its spaces are wanted."""
    try:
        made = make(env_id, **options)
    except Exception as error:  # whatever the author of an environment lets escape
        raise UserError(f"{env_id} cannot be made: {one_line(error)}") from error
    if isinstance(made, AbstractEnvironment):
        return made
    made.close()
    return HostEnvironments(made)
