"""What every agent is: a choice of settings, a program that trains one or several seeds, and five methods."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector.utils import batch_space, iterate
from jaxtyping import Float, Int

from e3rl.envs.adapter import batch_size, violation
from e3rl.envs.opening import Opened, open_environment
from e3rl.envs.spec import Spec
from e3rl.runs.checkpoint import load_tree, save_tree
from e3rl.runs.folder import RunFolder, read_json, refuse_earlier
from e3rl.runs.handover import Steps
from e3rl.runs.lanes import as_lane, lane_of
from e3rl.runs.logs import open_log
from e3rl.runs.progress import Callback, LiveLine, Watcher, nobody
from e3rl.runs.record import Record, StopAsked
from e3rl.runs.settings import Settings, as_dict, changed, from_dict
from e3rl.runs.summary import Summary
from e3rl.types import Key, Keys, UserError, key_for

Agent = TypeVar("Agent", bound="AbstractAgent")


class AbstractProgram(ABC):
    """Some seeds of an algorithm on their environments, trained together."""

    spec: Spec
    clock_limit: int | None
    """Time steps that a policy can tell apart, None where it looks at no clock."""

    @abstractmethod
    def learn(self, record: Record, resume: bool) -> tuple[Any, list[dict[str, Any]]]:
        """Train to the end, then play greedily: the policies, a lane for each seed, and a summary of each."""

    @abstractmethod
    def evaluate(self, policies: Any, episodes: int) -> Float[np.ndarray, "lanes n"]:
        """The returns of greedy episodes, other ones than those of training."""

    @abstractmethod
    def act(self, policy: Any, obs: Any, time: int, key: Key) -> int:
        """The greedy action of one seed's policy for an observation of the environment's space."""

    def act_many(
        self, policy: Any, obs: Sequence[Any], times: Int[np.ndarray, " n"], keys: Keys
    ) -> Int[np.ndarray, " n"]:
        """The greedy actions for n observations, each at its own time step."""
        each = zip(obs, times.tolist(), keys, strict=True)
        return np.array([self.act(policy, one, time, key) for one, time, key in each])

    @abstractmethod
    def blank_policy(self) -> Any:
        """The shapes of one seed's policy."""

    def load_policy(self, path: Path) -> Any:
        """One seed's policy from its file."""
        return load_tree(path, self.blank_policy())[0]

    @abstractmethod
    def close(self) -> None:
        """Close the environments, those in Python."""


class AbstractAgent(ABC):
    """Learns, predicts, evaluates, saves and loads.

    `env` is an id (with `env_options`), a Gymnasium environment or a functional one. `config` is an object of this
    agent's settings or the name of a preset; without it the settings are chosen by the environment's looks, and
    `agent.config` shows them. With `asynchronous` every copy of a Gymnasium environment lives in a process of its own
    (see `PythonCopies`); the results are the same.
    """

    algo: ClassVar[str]
    settings: ClassVar[type[Settings]]
    presets: ClassVar[Mapping[str, Any]]
    """Named settings."""
    renamed: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """What settings of earlier versions are called now, by path."""
    hands_over_to: ClassVar[str | None] = None
    """The agent that goes on where this one cannot (`HandOver`), by its name."""
    explores_first: ClassVar[bool] = False
    """Whether the episodes before the greedy ones were meant to explore, and not to learn on the way."""

    def __init__(
        self,
        env: Any,
        config: Any = None,
        seed: int = 0,
        env_options: Mapping[str, Any] | None = None,
        asynchronous: bool = False,
    ):
        options = dict(env_options or {})
        opened = open_environment(env, options)
        try:
            self.config = self.configured(opened, config)
            self.program = self.make_program([opened], self.config, [seed], asynchronous)
        except BaseException:
            opened.close()
            raise
        self.opened = opened
        self.seed = seed
        self.description = self.describe(env if isinstance(env, str) else None, options, seed, self.config)
        self.policy: Any = None
        self._time = 0
        self._actions_taken = 0

    @classmethod
    @abstractmethod
    def suited(cls, opened: Opened) -> Any:
        """The settings that suit an environment by its looks."""

    @classmethod
    @abstractmethod
    def make_program(
        cls, opened: Sequence[Opened], config: Any, seeds: Sequence[int], asynchronous: bool
    ) -> AbstractProgram:
        """The program that trains these seeds, each on its own environment."""

    @classmethod
    def heir(cls, opened: Opened, seed: int, steps: Steps) -> tuple[Any, AbstractProgram]:
        """Settings and program of an agent that goes on with the experience of another."""
        raise UserError(f"{cls.algo} cannot take over from another agent")

    @classmethod
    def share_a_program(cls, config: Any) -> bool:
        """Whether several seeds on functional environments are to be trained in one program."""
        return True

    @classmethod
    def configured(cls, opened: Opened, config: Any = None, changes: Mapping[str, Any] | None = None) -> Any:
        """Settings from an object, a preset's name, or None for what suits the environment, with changes by path."""
        if config is None or config == "auto":
            config = cls.suited(opened)
        elif isinstance(config, str):
            if config not in cls.presets:
                raise UserError(f"unknown config {config!r}; known: auto, {', '.join(cls.presets)}")
            config = cls.presets[config]
        if not isinstance(config, cls.settings):
            raise UserError(f"{cls.algo} takes settings of type {cls.settings.__name__}, got {config!r}")
        return changed(config, changes or {})

    @classmethod
    def describe(cls, env: str | None, options: Mapping[str, Any], seed: int, config: Any) -> dict[str, Any]:
        """Everything needed to repeat a run."""
        about = {"algo": cls.algo, "env": env, "env_options": dict(options), "seed": seed}
        return {**about, "config": as_dict(config)}

    @property
    def env(self) -> Any:
        return self.opened.made

    def learn(
        self,
        out: str | Path | None = None,
        resume: bool = False,
        watch: Watcher = nobody,
        *,
        progress: bool = True,
        callback: Callback | None = None,
        log: str | None = None,
    ) -> Summary:
        """Train, then play greedily; returns the run's summary, which prints as one line. With `out`, the run is
        recorded there, and `resume` goes on with it.

        How far it is stands on stderr, unless `progress` is false; a `watch` hears it instead. `callback` is called
        after every epoch of learning with the same `Progress`: if it returns False the run stops there, saved in
        `out`. `log="tensorboard"` also writes the rows of metrics.csv for TensorBoard.
        """
        if log is not None and out is None:
            raise UserError("a log goes into the run's folder: give out=... with log=...")
        folders = [RunFolder(Path(out))] if out is not None else []
        opened = None if log is None else open_log(log)
        with LiveLine(quiet=not progress) as line:
            record = Record(
                [self.seed], folders, [self.description], line if watch is nobody else watch, callback, opened
            )
            try:
                policies, [summary] = self.program.learn(record, resume)
            except StopAsked:
                return Summary(record.stopped(0), self.explores_first)
        self.policy = lane_of(policies)
        return Summary(summary, self.explores_first)

    def start_episode(self) -> None:
        """Set the clock of `predict` to the first step."""
        self._time = 0

    def predict(self, obs: Any, time: Any = None) -> Any:
        """The greedy action for `obs` at step `time`; without it the agent keeps the clock itself, which
        `start_episode` sets to zero and which starts over after the last step. An agent that exploits by search plans
        at every call. Actions count from 0, whatever the start of the environment's space.

        Several observations side by side, as `gymnasium.vector` has them, are answered with an array of actions; they
        share the clock, unless `time` has a step for each.
        """
        space, limit = self.program.spec.encoding.space, self.program.clock_limit
        count = batch_size(space, obs)
        steps = np.asarray(self._time if time is None else time)
        if steps.dtype.kind not in "iu" or steps.shape not in ((), (count,)):
            many = "" if count is None else f", or one for each of {count} observations"
            raise UserError(f"time must be a whole number{many}, got {time!r}")
        wrong = (steps < 0) | (steps >= (np.inf if limit is None else limit))
        if wrong.any():
            allowed = f"in 0 … {limit - 1}" if limit else "at least 0"
            raise UserError(f"time must be {allowed}, got {steps[wrong].flat[0]}")
        fault = violation(space if count is None else batch_space(space, count), obs)
        if fault is not None:
            raise UserError(fault)
        policy, taken = self._learned(), self._actions_taken
        if count == 0:
            return np.zeros(0, int)
        self._actions_taken += 1 if count is None else count
        if steps.ndim == 0:
            self._time = 0 if steps + 1 == limit else int(steps) + 1
        key = jax.random.key(self.seed)
        if count is None:
            return self.program.act(policy, obs, int(steps), key_for(key, "predict", taken))
        keys = jax.vmap(lambda i: key_for(key, "predict", i))(jnp.arange(taken, taken + count))
        rows = list(iterate(batch_space(space, count), obs))
        return self.program.act_many(policy, rows, np.broadcast_to(steps, count), keys)

    def evaluate(self, episodes: int = 100) -> Float[np.ndarray, " n"]:
        """The returns of that many greedy episodes, other ones than those of training."""
        if episodes < 1:
            raise UserError(f"episodes must be at least 1, got {episodes}")
        return self.program.evaluate(as_lane(self._learned()), episodes)[0]

    def save(self, path: str | Path) -> None:
        folder = RunFolder(Path(path))
        save_tree(folder.policy, self._learned())
        folder.write_config(self.description)

    @classmethod
    def load(cls: type[Agent], path: str | Path, env: Any = None) -> Agent:
        """The agent saved at `path`, or a finished run's. An agent whose environment had no id needs it again."""
        folder = RunFolder(Path(path))
        about = read_config(folder.path)
        if about["algo"] != cls.algo:
            raise UserError(f"{path} holds an agent of {about['algo']}, not of {cls.algo}")
        config = cls.stored_config(folder.path, about)
        seed, name, options = about["seed"], about["env"], about["env_options"]
        if env is None and name is None:
            raise UserError(f"{path} was trained on an environment without an id: load it with env=...")
        if not folder.policy.is_file():
            raise UserError(f"{path} has no trained policy yet: finish the run with --resume first")
        agent = cls(name if env is None else env, config, seed, options if env is None else None)
        agent.policy = agent.program.load_policy(folder.policy)
        return agent

    @classmethod
    def stored_config(cls, path: Path, about: Mapping[str, Any]) -> Any:
        """The settings in a run's config.json."""
        try:
            return from_dict(cls.settings, about["config"])
        except (AttributeError, TypeError, UserError) as error:
            raise UserError(f"{path / 'config.json'} is no configuration of {cls.algo}: {error}") from error

    def close(self) -> None:
        """Close the environments that this agent opened."""
        self.program.close()
        self.opened.close()

    def _learned(self) -> Any:
        if self.policy is None:
            raise UserError("the agent has not learned yet: call learn() first")
        return self.policy


KEYS = ("algo", "env", "env_options", "seed", "config")


def read_config(path: Path) -> dict[str, Any]:
    """A run's config.json, with everything in it that a run has."""
    about = read_json(path / "config.json")
    refuse_earlier(path, about)
    missing = [key for key in KEYS if key not in about]
    if missing:
        raise UserError(f"{path / 'config.json'} is no configuration of a run: {missing[0]!r} is missing")
    return about
