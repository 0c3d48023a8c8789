"""One copy of a Python environment, what copies answer, and copies that are stepped one after the other."""

import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from jaxtyping import Bool, Float32

from e3rl.envs.adapter import BadReturn, GymnasiumEnvironment
from e3rl.envs.blame import RAISED, told

REST = -1
"""In place of an action: the copy is not stepped."""
REPORT = "e3rl report"


class Failure(NamedTuple):
    problem: str
    """What went wrong, in one line and without the place."""
    traceback: str


class Answer(NamedTuple):
    """What n copies answer. One that was left alone, or failed, shows what it showed last and has not ended."""

    obs: Float32[np.ndarray, "n *obs"]
    reward: Float32[np.ndarray, " n"]
    terminated: Bool[np.ndarray, " n"]
    truncated: Bool[np.ndarray, " n"]
    failures: dict[int, Failure]
    """By copy; empty when all went well."""


class Report(NamedTuple):
    """What a copy says beside observation and reward."""

    terminated: bool = False
    truncated: bool = False
    failure: Failure | None = None


WENT_ON = Report()
Told: TypeAlias = tuple[Float32[np.ndarray, "*obs"], float, Report]
"""What one copy shows, pays and reports."""
Errand: TypeAlias = int | list[int]
"""The seed of an episode to begin, or actions to take one after the other."""


class Copy(gymnasium.Env):
    """One copy of the environment, in a form that `gymnasium.vector` can run too.

    A vector must not step a copy that has terminated, yet it steps all copies together. So the ends of episodes
    travel in `info`, and copies that have nothing to do are told to rest. What the environment raises travels
    in `info` too, because an exception would take the other copies' steps with it.
    """

    def __init__(self, env: GymnasiumEnvironment, closes: bool):
        self._env = env
        self._closes = closes
        self._obs = np.zeros(env.encoding.shape, np.float32)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, env.encoding.shape, np.float32)
        self.action_space = gymnasium.spaces.Discrete(env.num_actions + 1, start=REST)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        obs, _, report = self.begin(seed)
        return obs, {REPORT: report}

    def begin(self, seed: int | None) -> Told:
        """Start an episode; a copy that is given no seed goes on with the one it has."""
        if seed is None:
            return self._obs, 0.0, WENT_ON
        try:
            self._obs = self._env.reset(seed)
        except RAISED as error:
            return self._obs, 0.0, _failed(error)
        return self._obs, 0.0, WENT_ON

    def run(self, errand: Errand) -> list[Told]:
        """What it answers to the beginning of an episode, or to one action after the other while that goes on."""
        if isinstance(errand, int):
            return [self.begin(errand)]
        answers: list[Told] = []
        try:
            for action in errand:
                self._obs, reward, terminated, truncated = self._env.step(action)
                if terminated or truncated:
                    answers.append((self._obs, reward, Report(terminated, truncated)))
                    break
                answers.append((self._obs, reward, WENT_ON))
        except RAISED as error:
            answers.append((self._obs, 0.0, _failed(error)))
        return answers

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, report = self.answer(action)
        return obs, reward, False, False, {REPORT: report}

    def answer(self, action: int) -> Told:
        return (self._obs, 0.0, WENT_ON) if action == REST else self.run([action])[0]

    def close(self) -> None:
        if self._closes:
            self._env.close()


def _failed(error: BaseException) -> Report:
    problem = error.problem if isinstance(error, BadReturn) else told(error)
    return Report(failure=Failure(problem, traceback.format_exc()))


def gather(told: Sequence[Told]) -> Answer:
    obs, rewards, reports = zip(*told, strict=True)
    return Answer(
        np.array(obs),
        np.array(rewards, np.float32),
        np.array([report.terminated for report in reports]),
        np.array([report.truncated for report in reports]),
        {copy: report.failure for copy, report in enumerate(reports) if report.failure is not None},
    )


class Loop:
    """Copies in this process. The first is there already and closing it stays with its owner; `make` makes the others,
    which are closed here."""

    def __init__(
        self, first: GymnasiumEnvironment, make: Callable[[], GymnasiumEnvironment] | None, count: int
    ):
        self._copies = [Copy(first, closes=False)]
        self._back: list[tuple[int, list[Told]]] = []
        with ExitStack() as unfinished:
            while make is not None and len(self._copies) < count:
                self._copies.append(Copy(make(), closes=True))
                unfinished.callback(self._copies[-1].close)
            self._closing = unfinished.pop_all()

    def reset(self, seeds: Sequence[int | None]) -> list[Told]:
        return [copy.begin(seed) for copy, seed in zip(self._copies, seeds, strict=True)]

    def step(self, actions: Sequence[int]) -> list[Told]:
        return [copy.answer(action) for copy, action in zip(self._copies, actions, strict=True)]

    def send(self, copy: int, errand: Errand) -> None:
        self._back.append((copy, self._copies[copy].run(errand)))

    def back(self, everyone: bool) -> list[tuple[int, list[Told]]]:
        """What was answered on errands since the last call."""
        found, self._back = self._back, []
        return found

    def close(self) -> None:
        self._closing.close()
