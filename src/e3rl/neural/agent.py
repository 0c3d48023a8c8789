"""`NeuralE3`, the agent: learn, predict, evaluate, save, load."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from e3rl.envs.adapter import violation
from e3rl.envs.base import AbstractEnvironment
from e3rl.neural.acting import Policy
from e3rl.neural.checkpoint import load_tree, save_tree
from e3rl.neural.choosing import prepare
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.lanes import key_for, lanes_for
from e3rl.neural.run_folder import RunFolder, read_json
from e3rl.neural.training import Training, Watcher
from e3rl.types import UserError


def describe(env: str | None, options: dict[str, Any], seed: int, config: NeuralE3Config) -> dict[str, Any]:
    """Everything needed to repeat a run."""
    return {
        "algo": "ue2" if config.planner == "uniform" else "neural-e3",
        "env": env,
        "env_options": options,
        "seed": seed,
        "config": dataclasses.asdict(config),
    }


class NeuralE3:
    """Explores where its models disagree, then exploits (Algorithm 1, section 4).

    `env` is an id (with `env_options`), a Gymnasium environment or a functional one. Without `config` the settings are
    chosen by the environment's looks; `agent.config` shows them. With `asynchronous` every copy of a Gymnasium
    environment lives in a process of its own (see `HostEnvironments`); the results are the same.
    """

    def __init__(
        self,
        env: Any,
        config: NeuralE3Config | None = None,
        seed: int = 0,
        env_options: dict[str, Any] | None = None,
        asynchronous: bool = False,
    ):
        self.env, self.config = prepare(env, env_options or {}, config, asynchronous)
        self.seed = seed
        self.description = describe(
            env if isinstance(env, str) else None, env_options or {}, seed, self.config
        )
        self.policy: Policy | None = None
        self.lanes = lanes_for(self.env, self.config)
        self.time = 0
        self.actions_taken = 0

    def learn(
        self, out: str | Path | None = None, resume: bool = False, watch: Watcher = lambda progress: None
    ) -> dict[str, Any]:
        """Explore, then fit the exploit policy; returns the run's summary. With `out`, the run is recorded there."""
        folders = [RunFolder(Path(out))] if out is not None else []
        about = [self.description] if folders else []
        training = Training([self.env], self.config, [self.seed], folders, about, watch)
        policy, _, summaries = training.learn(resume)
        self.policy = jax.tree.map(lambda leaf: leaf[0], policy)
        return summaries[0]

    def start_episode(self) -> None:
        """Set the clock of `predict` to the first step."""
        self.time = 0

    def predict(self, obs: Any, time: int | None = None) -> int:
        """The action for `obs` at step `time`; without it the agent keeps the clock itself, which `start_episode`
        sets to zero and which starts over after the horizon. An agent that exploits by search plans at every call.
        Actions count from 0, whatever the start of the environment's space."""
        step = self.time if time is None else time
        if not 0 <= step < self.env.time_limit:
            raise UserError(f"time must be in 0 … {self.env.time_limit - 1}, got {step}")
        fault = violation(self.lanes.encoding.space, obs)
        if fault is not None:
            raise UserError(fault)
        observed = jnp.asarray(self.lanes.encoding.encode(obs), self.lanes.storage)
        key = key_for(jax.random.key(self.seed), "predict", self.actions_taken)
        plans, _ = self.lanes.exploit_plans(
            self._learned(), key[None], observed[None], jnp.array([step], jnp.int32), jnp.array([True])
        )
        self.actions_taken += 1
        self.time = (step + 1) % self.env.time_limit
        return int(plans[0, 0])

    def evaluate(self, episodes: int = 100) -> np.ndarray:
        """The returns of that many greedy episodes, other ones than those of training."""
        if episodes < 1:
            raise UserError(f"episodes must be at least 1, got {episodes}")
        policy, env = jax.tree.map(lambda leaf: leaf[None], self._learned()), self.env
        if isinstance(env, AbstractEnvironment):
            env = jax.tree.map(lambda leaf: leaf[None], env)
        keys = jax.random.key(self.seed)[None]
        return np.asarray(self.lanes.evaluate(env, policy, keys, episodes))[0]

    def save(self, path: str | Path) -> None:
        folder = RunFolder(Path(path))
        save_tree(folder.policy, self._learned())
        folder.write_config(self.description)

    @classmethod
    def load(cls, path: str | Path, env: Any = None) -> "NeuralE3":
        """The agent saved at `path`, or a finished run's. An agent whose environment had no id needs it again."""
        folder = RunFolder(Path(path))
        about = read_json(folder.path / "config.json")
        try:
            config = NeuralE3Config(**about["config"])
            seed, name, options = about["seed"], about["env"], about["env_options"]
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{folder.path / 'config.json'} is not a Neural-E³ configuration: {error}"
            ) from error
        if env is None and name is None:
            raise UserError(f"{path} was trained on an environment without an id: load it with env=...")
        if not folder.policy.is_file():
            raise UserError(f"{path} has no trained policy yet: finish the run with --resume first")
        agent = cls(name if env is None else env, config, seed, options if env is None else None)
        like = jax.eval_shape(agent._fresh_policy)
        agent.policy, _ = load_tree(folder.policy, like)
        return agent

    def _fresh_policy(self) -> Policy:
        models, _, replay = self.lanes.fresh(jax.random.key(self.seed))
        return self.lanes.untrained(models, replay.scale, jax.random.key(self.seed))

    def _learned(self) -> Policy:
        if self.policy is None:
            raise UserError("the agent has not learned yet: call learn() first")
        return self.policy
