"""The baselines as agents: learn, predict, evaluate, save, load, as `NeuralE3` has them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from e3rl.baselines.base import State
from e3rl.baselines.compiled import CompiledProgram
from e3rl.baselines.config import DQN_CONFIGS, BaselineConfig, DQNConfig
from e3rl.baselines.host import HostProgram, choose_greedily, copies_of, fresh_state
from e3rl.baselines.observer import Observer, horizon_of
from e3rl.baselines.ppo_config import PPO_CONFIGS, PPOConfig
from e3rl.baselines.training import Training
from e3rl.envs.adapter import GymnasiumEnvironment, make, violation
from e3rl.envs.base import AbstractEnvironment
from e3rl.neural.checkpoint import load_tree, save_tree
from e3rl.neural.lanes import key_for
from e3rl.neural.run_folder import RunFolder, read_json
from e3rl.neural.training import Watcher
from e3rl.types import UserError


def describe(
    algo: str, env: str | None, options: Mapping[str, Any], seed: int, config: BaselineConfig
) -> dict[str, Any]:
    """Everything needed to repeat a run."""
    about = {"algo": algo, "env": env, "env_options": dict(options), "seed": seed}
    return {**about, "config": dataclasses.asdict(config)}


class BaselineAgent:
    """An agent that learns without a model. `env` is an id (with `env_options`), a Gymnasium environment or a
    functional one; one that lives in Python is played in as many copies as the config says."""

    algo: ClassVar[str]
    configs: ClassVar[Mapping[str, BaselineConfig]]
    """Named settings; the first are the default."""

    def __init__(
        self,
        env: Any,
        config: BaselineConfig | None = None,
        seed: int = 0,
        env_options: dict[str, Any] | None = None,
    ):
        self.config = config or next(iter(self.configs.values()))
        self.refuse_other(self.config)
        self.seed = seed
        self.algorithm = self.config.baseline()
        options = env_options or {}
        made = make(env, **options)
        self.env: AbstractEnvironment | GymnasiumEnvironment = made
        self.observer = Observer(made.observation_space, horizon_of(made, self.config.clock))
        self.program: CompiledProgram | HostProgram
        if isinstance(made, AbstractEnvironment):
            self.program = CompiledProgram(self.algorithm, [made], [seed], self.config.clock)
        else:
            envs = copies_of(made, env, options, self.algorithm.copies)
            self.program = HostProgram(self.algorithm, envs, seed, self.config.clock)
        self.description = describe(
            self.algo, env if isinstance(env, str) else None, options, seed, self.config
        )
        self.policy: State | None = None
        self.time = 0
        self.actions_taken = 0

    @classmethod
    def refuse_other(cls, config: BaselineConfig) -> None:
        """An error for settings that are another algorithm's."""
        if type(config) is not type(next(iter(cls.configs.values()))):
            raise UserError(f"{cls.algo} takes no settings of type {type(config).__name__}")

    def learn(
        self, out: str | Path | None = None, resume: bool = False, watch: Watcher = lambda progress: None
    ) -> dict[str, Any]:
        """Train, then evaluate; returns the run's summary. With `out`, the run is recorded there."""
        folders = [RunFolder(Path(out))] if out is not None else []
        about = [self.description] if folders else []
        optimum = getattr(self.env, "optimal_return", None)
        optima = [optimum if isinstance(optimum, float) else None]
        training = Training(self.program, self.config, [self.seed], folders, about, optima, watch)
        policy, summaries = training.learn(resume)
        self.policy = jax.tree.map(lambda leaf: leaf[0], policy)
        return summaries[0]

    def start_episode(self) -> None:
        """Set the clock of `predict` to the first step."""
        self.time = 0

    def predict(self, obs: Any, time: int | None = None) -> int:
        """The greedy action for `obs` at step `time`; without it the agent keeps the clock itself, which
        `start_episode` sets to zero. Only agents whose config has a clock look at it."""
        step = self.time if time is None else time
        limit = horizon_of(self.env, self.config.clock)
        if step < 0 or (limit is not None and step >= limit):
            raise UserError(f"time must be {f'in 0 … {limit - 1}' if limit else 'at least 0'}, got {step}")
        fault = violation(self.env.observation_space, obs)
        if fault is not None:
            raise UserError(fault)
        key = key_for(jax.random.key(self.seed), "predict", self.actions_taken)
        seen = np.asarray(self.observer(obs, step))
        action = choose_greedily(self.algorithm, self._learned(), key, seen, np.int32(step))
        self.actions_taken += 1
        self.time = 0 if step + 1 == limit else step + 1
        return int(action)

    def evaluate(self, episodes: int = 100) -> np.ndarray:
        """The returns of that many greedy episodes, other ones than those of training."""
        if episodes < 1:
            raise UserError(f"episodes must be at least 1, got {episodes}")
        policy = jax.tree.map(lambda leaf: leaf[None], self._learned())
        return self.program.evaluate(policy, episodes)[0][0]

    def save(self, path: str | Path) -> None:
        folder = RunFolder(Path(path))
        save_tree(folder.policy, self._learned())
        folder.write_config(self.description)

    @classmethod
    def load(cls, path: str | Path, env: Any = None) -> "BaselineAgent":
        """The agent saved at `path`, or a finished run's. An agent whose environment had no id needs it again."""
        folder = RunFolder(Path(path))
        about = read_json(folder.path / "config.json")
        try:
            if about["algo"] != cls.algo:
                raise UserError(f"{path} holds an agent of {about['algo']}, not of {cls.algo}")
            config = type(next(iter(cls.configs.values())))(**about["config"])
            seed, name, options = about["seed"], about["env"], about["env_options"]
        except (KeyError, TypeError) as error:
            message = f"{folder.path / 'config.json'} is not a configuration of {cls.algo}: {error}"
            raise UserError(message) from error
        if env is None and name is None:
            raise UserError(f"{path} was trained on an environment without an id: load it with env=...")
        if not folder.policy.is_file():
            raise UserError(f"{path} has no trained policy yet: finish the run with --resume first")
        agent = cls(name if env is None else env, config, seed, options if env is None else None)
        agent.policy, _ = load_tree(folder.policy, jax.eval_shape(agent._fresh_policy))
        return agent

    def close(self) -> None:
        """Close the environments of an agent that plays in Python."""
        self.program.close()

    def _fresh_policy(self) -> State:
        state = fresh_state(
            self.algorithm, jax.random.key(self.seed), self.observer.shape, self.env.num_actions
        )
        return self.algorithm.policy(state)

    def _learned(self) -> State:
        if self.policy is None:
            raise UserError("the agent has not learned yet: call learn() first")
        return self.policy


class DQN(BaselineAgent):
    """Double DQN with prioritised replay (sections 5.1 to 5.3)."""

    algo = "dqn"
    configs = DQN_CONFIGS
    config: DQNConfig


class PPO(BaselineAgent):
    """Proximal policy optimisation (section 5.1)."""

    algo = "ppo"
    configs = {name: config for name, config in PPO_CONFIGS.items() if not config.rnd}  # noqa: RUF012
    config: PPOConfig

    @classmethod
    def refuse_other(cls, config: BaselineConfig) -> None:
        super().refuse_other(config)
        if isinstance(config, PPOConfig) and config.rnd != (cls.algo == "ppo-rnd"):
            raise UserError(f"rnd={config.rnd} in the settings of {cls.algo}")


class PPORND(PPO):
    """PPO with the exploration bonus of random network distillation (sections 5.1, 5.3)."""

    algo = "ppo-rnd"
    configs = {name: config for name, config in PPO_CONFIGS.items() if config.rnd}  # noqa: RUF012


AGENTS: dict[str, type[BaselineAgent]] = {agent.algo: agent for agent in (DQN, PPO, PPORND)}
