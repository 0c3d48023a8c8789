"""What every agent is: a choice of settings, a program that trains one or several seeds, and five methods."""

import contextlib
import copy
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector.utils import batch_space, iterate
from jaxtyping import Float, Int

from e3rl.envs.adapter import batch_size
from e3rl.envs.membership import violation
from e3rl.envs.opening import Opened, open_environment
from e3rl.envs.spec import Spec
from e3rl.memory import refuse_too_large
from e3rl.runs.checkpoint import load_tree, save_tree
from e3rl.runs.folder import ABOUT, RunFolder, read_about, refuse_earlier
from e3rl.runs.handover import Steps
from e3rl.runs.kept_programs import keep_compiled_programs
from e3rl.runs.lanes import as_lane, lane_of
from e3rl.runs.logs import open_log
from e3rl.runs.progress import Callback, LiveLine, Watcher, nobody
from e3rl.runs.record import Record, StopAsked
from e3rl.runs.settings import Settings, as_dict, as_plain, by_path, changed, from_dict, numbers_of
from e3rl.runs.summary import Summary
from e3rl.types import Key, Keys, UserError, key_for

Agent = TypeVar("Agent", bound="AbstractAgent")
SURELY_SMALL = 500
"""A number up to which no setting makes a program large."""
SURELY_COMPUTED = 5_000
"""A number up to which what is made on the way is no larger than what is held."""
LARGEST_COUNTED = 2**20
"""A number up to which shapes made of it can be spoken of, even where nothing of that shape could be made."""
MOST_TRIED = 6
"""Settings that are halved to see what that saves, where it takes long to see."""


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

    def evaluation_memory(self, episodes: int) -> float:
        """Bytes that so many greedy episodes take, as far as they are held together."""
        return 16.0 * episodes * self.spec.horizon

    def load_policy(self, path: Path) -> Any:
        """One seed's policy from its file."""
        return load_tree(path, self.blank_policy())[0]

    @abstractmethod
    def close(self) -> None:
        """Close the environments, those in Python."""


class AbstractAgent(ABC):
    """Learns, predicts, evaluates, saves and loads.

    `env` is an id (with `env_options`), a Gymnasium environment or a functional one. `config` is an object of this
    agent's settings, the name of a preset, or a dictionary of changes (`{"planner": "graph", "planner.nodes": 500}`) to
    the settings that are chosen by the environment's looks, as all are without it; `agent.config` shows them. With
    `asynchronous` every copy of a Gymnasium environment lives in a process of its own (see `PythonCopies`);
    the results are the same.
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
        seed: int | np.integer = 0,
        env_options: Mapping[str, Any] | None = None,
        asynchronous: bool = False,
    ):
        seed = checked_seed(seed)
        options = {name: as_plain(value) for name, value in (env_options or {}).items()}
        opened = open_environment(env, options)
        try:
            self.config = self.configured(opened, config)
            self.refuse_too_large(opened, self.config)
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
        """Settings from an object, a preset's name, a dictionary of changes to what suits the environment, or None for
        that itself, with changes by path."""
        if isinstance(config, Mapping):
            changes = {**by_path(config), **(changes or {})}
            config = None
        if config is None or (isinstance(config, str) and config == "auto"):
            config = cls.suited(opened)
        elif isinstance(config, str):
            if config not in cls.presets:
                raise UserError(f"unknown config {config!r}; known: auto, {', '.join(cls.presets)}")
            config = cls.presets[config]
        if not isinstance(config, cls.settings):
            raise UserError(f"{cls.algo} takes settings of type {cls.settings.__name__}, got {config!r}")
        return changed(config, changes or {})

    @classmethod
    def memory(cls, opened: Opened, config: Any, lanes: int, computing: bool) -> dict[str, float]:
        """Bytes that a program of so many seeds would take, by what takes them, from shapes alone; with `computing`,
        also what is made on the way, which takes longer to find out. Nothing, where an agent does not know."""
        return {}

    @classmethod
    def refuse_too_large(cls, opened: Opened, config: Any, lanes: int = 1) -> None:
        """An error where a program would not fit into memory. Where every number is small it does."""
        numbers = list(numbers_of(config))
        sizes = sorted(((value, path) for path, value, _ in numbers), reverse=True)
        # Steps that are made in turn take no room, unless there are more than a list of them would have.
        largest = max(
            opened.spec.horizon,
            math.prod(opened.spec.encoding.shape),
            lanes,
            *(value for _, value, in_turn in numbers if not in_turn or value > LARGEST_COUNTED),
        )
        if largest <= SURELY_SMALL:
            return

        def refuse(computing: bool) -> None:
            def total(opened: Opened, config: Any, lanes: int) -> float:
                return sum(cls.memory(opened, config, lanes, computing).values())

            def what_to_lower() -> str:
                """Whatever, halved, leaves the least."""
                whole, left = total(opened, config, lanes), {}
                for value, path in sizes[: MOST_TRIED if computing else None]:
                    with contextlib.suppress(UserError):
                        left[path] = total(opened, changed(config, {path: max(1, value // 2)}), lanes)
                shorter = copy.copy(opened)
                shorter.spec = dataclasses.replace(opened.spec, horizon=max(1, opened.spec.horizon // 2))
                left["the length of episodes"] = total(shorter, config, lanes)
                left["--seeds"] = total(opened, config, max(1, lanes // 2))
                found = [path for path in sorted(left, key=left.__getitem__) if left[path] < 0.9 * whole]
                return " or ".join(found[:3]) or "the size of observations"

            refuse_too_large("this run", cls.memory(opened, config, lanes, computing), what_to_lower)

        try:
            refuse(computing=False)
            if largest > SURELY_COMPUTED:
                refuse(computing=True)
        except (OverflowError, TypeError, ValueError) as error:
            value, path = sizes[0]
            if isinstance(error, UserError) or value <= LARGEST_COUNTED:
                raise
            raise UserError(f"{path}={value} is beyond what can be counted with: lower it") from error

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
        after every epoch of learning, and every round of practice, with the same `Progress`: if it returns False the
        run stops there, saved in `out`. `log="tensorboard"` also writes the rows of metrics.csv for TensorBoard.

        Compiled programs are kept in the user's cache folder (`kept_programs`).
        """
        if log is not None and out is None:
            raise UserError("a log goes into the run's folder: give out=... with log=...")
        keep_compiled_programs()
        folders = [RunFolder(Path(out))] if out is not None else []
        opened = None if log is None else open_log(log)
        with LiveLine(quiet=not progress) as line:
            seen_by = line if watch is nobody else watch
            record = Record([self.seed], folders, [self.description], seen_by, callback=callback, log=opened)
            try:
                with record:
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

    def evaluate(self, episodes: int | np.integer = 100) -> Float[np.ndarray, " n"]:
        """The returns of that many greedy episodes, other ones than those of training."""
        episodes = as_plain(episodes)
        if not isinstance(episodes, int) or isinstance(episodes, bool):
            raise UserError(f"episodes must be a whole number, got {episodes!r}")
        if episodes < 1:
            raise UserError(f"episodes must be at least 1, got {episodes}")
        needs = {"episodes": self.program.evaluation_memory(episodes)}
        refuse_too_large(f"{episodes} episodes", needs, lambda: "their number")
        return self.program.evaluate(as_lane(self._learned()), episodes)[0]

    def save(self, path: str | Path) -> None:
        """Write what `load` reads into a folder; one that holds something else is refused."""
        folder, policy = RunFolder(Path(path)), self._learned()
        folder.refuse_foreign()
        save_tree(folder.policy, policy)
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


def checked_seed(seed: Any) -> int:
    """A seed as a whole number, NumPy's too."""
    plain = as_plain(seed)
    if not isinstance(plain, int) or isinstance(plain, bool) or not 0 <= plain < 2**31:
        raise UserError(f"seed must be a whole number from 0 to 2**31 − 1, got {seed!r}")
    return plain


def read_config(path: Path) -> dict[str, Any]:
    """A run's config.json, with everything in it that a run has."""
    about = read_about(path)
    refuse_earlier(path, about)
    missing = [key for key in ABOUT if key not in about]
    if missing:
        raise UserError(f"{path / 'config.json'} is no configuration of a run: {missing[0]!r} is missing")
    return about
