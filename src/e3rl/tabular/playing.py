"""A table's policy, and the one copy of an environment in which it is played."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

from e3rl.envs.playing.copy import Answer
from e3rl.envs.playing.python_copies import PythonCopies
from e3rl.envs.spec import Spec
from e3rl.tabular.posterior import digest, index_of
from e3rl.types import UserError

EXPLORE, EXPLOIT, EVALUATE, LOOK = range(4)
"""Uses of a seed."""
MORE, ENOUGH_TO_JUDGE = 10, 40_000
"""Times as many greedy episodes at most where returns differ, and their steps."""


class TablePolicy(NamedTuple):
    """What is kept of a finished run: states by their digests, and an action for each at each time step."""

    keys: UInt8[np.ndarray, "S n"]
    actions: Int[np.ndarray, "T S"]
    """Time steps past the last row take the last."""


class Played(NamedTuple):
    """One episode of exploring."""

    total: float
    length: int
    disagreement: float


class Player:
    """Episodes that a seed, their use and their number repeat."""

    def __init__(self, env: PythonCopies, spec: Spec, seed: int):
        self.env, self.spec, self.seed = env, spec, seed
        self._index: tuple[object, dict[bytes, int]] = (None, {})

    def begin(self, use: int, number: int) -> Float[np.ndarray, "*obs"]:
        """The first observation of an episode."""
        seed = int(np.random.SeedSequence([self.seed, use, number]).generate_state(1)[0]) % 2**31
        first: Float[np.ndarray, "*obs"] = self.asked(self.env.reset([seed]), 0).obs[0]
        return first

    def asked(self, answer: Answer, step: int) -> Answer:
        """The answer, unless the environment failed."""
        if answer.failures:
            failure, place = answer.failures[0], f"step {step}" if step else "reset"
            error = UserError(f"{self.spec.name}, {place} of an episode: {failure.problem}")
            error.add_note(failure.traceback)
            raise error
        return answer

    def judge(self, policy: TablePolicy, least: int) -> list[Played]:
        """At least so many greedy episodes; where their returns differ more of them, so that their mean is worth
        something."""
        played = [self.greedy(policy, EXPLOIT, i) for i in range(least)]
        steps = sum(each.length for each in played)
        if len({each.total for each in played}) > 1:
            while len(played) < MORE * least and steps < ENOUGH_TO_JUDGE:
                played.append(self.greedy(policy, EXPLOIT, len(played)))
                steps += played[-1].length
        return played

    def greedy(self, policy: TablePolicy, use: int, episode: int) -> Played:
        obs = self.begin(use, episode)
        total, step = 0.0, 0
        while step < self.spec.horizon:
            action = self.choose(policy, obs, step, episode)
            answer = self.asked(self.env.step(np.array([action])), step + 1)
            obs, total, step = answer.obs[0], total + float(answer.reward[0]), step + 1
            if answer.terminated[0] or answer.truncated[0]:
                break
        return Played(total, step, math.nan)

    def choose(self, policy: TablePolicy, obs: Float[np.ndarray, "*obs"], step: int, salt: int) -> int:
        """The action for an encoded observation; of one never seen, any."""
        if self._index[0] is not policy.keys:
            self._index = policy.keys, index_of(np.asarray(policy.keys))
        row = self._index[1].get(digest(obs))
        if row is None:
            return int(np.random.default_rng((self.seed, salt, step)).integers(self.spec.actions))
        return int(policy.actions[min(step, len(policy.actions) - 1), row])
