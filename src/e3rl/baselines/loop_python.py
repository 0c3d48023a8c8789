"""Baselines on Gymnasium environments: acting and learning compiled, stepping in Python."""

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from e3rl.baselines.base import AbstractBaseline, Metrics, Rollout, State
from e3rl.baselines.loop_jax import Ended
from e3rl.baselines.observer import Observer, horizon_of
from e3rl.envs.playing.copy import REST, Answer
from e3rl.envs.playing.python_copies import PythonCopies
from e3rl.runs.lanes import as_lane, lane_of
from e3rl.signals import disturbed
from e3rl.types import Key, Keys, UserError, key_for

STEPS_PER_CALL = 1_000
LONGEST_EVALUATION = 10_000
"""Steps after which a greedy episode is given up where the environment has no limit of its own."""
TRAINING, EVALUATION = 0, 1


class PythonCarry(NamedTuple):
    """What training goes on from, beside the episodes under way."""

    state: State
    iteration: Int[Array, ""]


@functools.lru_cache(maxsize=8)
def _acting(algorithm: AbstractBaseline) -> Callable[[State, Key, Any], tuple[Array, Any]]:
    """`act`, compiled. Looked up once: a `filter_jit` compares the algorithm again at every step."""
    return jax.jit(lambda state, key, obs: algorithm.act(state, key, obs))


@eqx.filter_jit(donate="all-except-first")
def _learn(call: tuple[AbstractBaseline, Key, Rollout], state: State) -> tuple[State, Metrics]:
    algorithm, key, rollout = call
    return algorithm.learn(state, key, rollout)


@eqx.filter_jit
def choose_greedily(algorithm: AbstractBaseline, policy: State, key: Key, obs: Any, time: Any) -> Array:
    return algorithm.greedy(policy, key, obs, time)


@eqx.filter_jit
def choose_all_greedily(
    algorithm: AbstractBaseline, policy: State, keys: Keys, obs: Any, times: Any
) -> Int[Array, " n"]:
    return jax.vmap(lambda key, one, time: algorithm.greedy(policy, key, one, time))(keys, obs, times)


@eqx.filter_jit
def fresh_state(algorithm: AbstractBaseline, key: Key, shape: tuple[int, ...], actions: int) -> State:
    return algorithm.init(key_for(key, "init"), shape, actions)


@functools.partial(jax.jit, static_argnums=2)
def _keys(key: Key, iteration: Int[Array, ""], count: int) -> tuple[Key, ...]:
    keys = jax.random.split(key_for(key, "train", iteration), count)
    return tuple(keys[i] for i in range(count))


class PythonLoop:
    """Trains one agent on n copies of an environment that lives in Python.

    Every episode has a seed of its own, so that those under way at a checkpoint are found again by playing their
    actions once more.
    """

    def __init__(self, algorithm: AbstractBaseline, env: PythonCopies, seed: int, clock: bool):
        self.algorithm = algorithm
        self._act = _acting(algorithm)
        self.env = env
        self.seed = seed
        self.key = jax.random.key(seed)
        self.observer = Observer(env.observation_space, horizon_of(env.own_limit, clock))
        self.size = max(1, STEPS_PER_CALL // (algorithm.steps * algorithm.copies))
        self.episodes = [0] * env.copies
        self.actions: list[list[int]] = [[] for _ in range(env.copies)]
        self.returns = np.zeros(env.copies, np.float32)
        self.obs = np.zeros((env.copies, *self.observer.shape), np.float32)
        self.broken: BaseException | None = None
        """What ended the last call of `advance` in the middle of an iteration."""
        self._marks: list[tuple[int, list[int], int]] = []
        """Of every copy, at the end of the last iteration: which episode, its actions, and how many of them."""

    def begin(self) -> PythonCarry:
        self._reset(range(self.env.copies))
        state = fresh_state(self.algorithm, self.key, self.observer.shape, self.env.num_actions)
        return as_lane(PythonCarry(state, jnp.array(0, jnp.int32)))

    def advance(
        self, carry: PythonCarry, count: int, until: float = math.inf
    ) -> tuple[PythonCarry, Ended, dict[str, np.ndarray]]:
        """At most `count` more iterations, none begun after the clock says `until` but the first; reports have the axes
        [iterations, 1]. When the environment fails or a person interrupts, the iterations before that are returned, and
        `broken` says what it was."""
        state, first = lane_of(carry)
        done, reports = int(first), list[Any]()
        self._mark()
        while len(reports) < count and (not reports or time.perf_counter() < until):
            keys = _keys(self.key, np.int32(done), self.algorithm.steps + 1)
            try:
                with disturbed():
                    rows, ended = zip(*(self._step(state, key) for key in keys[1:]), strict=True)
            except (KeyboardInterrupt, UserError) as error:
                self.broken = error
                break
            rollout = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
            state, metrics = _learn((self.algorithm, keys[0], rollout), state)
            reports.append((jax.tree.map(lambda *leaves: np.stack(leaves), *ended), metrics))
            done += 1
            self._mark()
        if not reports:
            none = np.zeros((0, 1, self.algorithm.steps, self.env.copies))
            return carry, Ended._make((none.astype(bool), none, none.astype(np.int32))), {}
        ended, metrics = jax.tree.map(lambda *leaves: np.stack(leaves)[:, None], *reports)
        return as_lane(PythonCarry(state, jnp.array(done, first.dtype))), ended, metrics

    def _mark(self) -> None:
        self._marks = [
            (episode, own, len(own)) for episode, own in zip(self.episodes, self.actions, strict=True)
        ]

    def _step(self, state: State, key: Key) -> tuple[Rollout, Ended]:
        """One step of every copy; those whose episode it ended start over."""
        obs = self.obs.copy()
        chosen, extra = self._act(state, key, obs)
        action, extra = jax.tree.map(np.asarray, (chosen, extra))
        answer = self._play(action)
        next_obs, returns = self.obs.copy(), self.returns.copy()
        lengths = np.array([len(actions) for actions in self.actions], np.int32)
        ended = answer.terminated | answer.truncated
        for copy in np.flatnonzero(ended).tolist():
            self.episodes[copy] += 1
        self._reset(np.flatnonzero(ended).tolist())
        row = Rollout._make(
            (obs, action, answer.reward, next_obs, answer.terminated, answer.truncated, extra)
        )
        return row, Ended._make((ended, returns, lengths))

    def _play(self, action: Int[np.ndarray, " n"]) -> Answer:
        """Step the copies that are not to rest."""
        steps = [len(actions) + 1 for actions in self.actions]
        answer = self._asked(self.env.step(action), steps)
        for copy in np.flatnonzero(action != REST).tolist():
            self.actions[copy].append(int(action[copy]))
            self.returns[copy] += answer.reward[copy]
            self.obs[copy] = self.observer.scaled(answer.obs[copy], len(self.actions[copy]))
        return answer

    def _reset(self, copies: Sequence[int]) -> None:
        """Start the next episode of some copies."""
        if not copies:
            return
        seeds: list[int | None] = [None] * self.env.copies
        for copy in copies:
            seeds[copy] = _episode_seed(self.seed, TRAINING, copy, self.episodes[copy])
            self.actions[copy], self.returns[copy] = [], 0.0
        answer = self._asked(self.env.reset(seeds))
        for copy in copies:
            self.obs[copy] = self.observer.scaled(answer.obs[copy], 0)

    def _asked(self, answer: Answer, steps: Sequence[int] | None = None) -> Answer:
        """What copies answered to the steps of these numbers, or to a reset, unless one failed: whatever the author of
        an environment lets escape becomes one line."""
        if answer.failures:
            copy = min(answer.failures)
            failure, place = answer.failures[copy], "reset" if steps is None else f"step {steps[copy]}"
            error = UserError(f"{self.env.name}, {place} of an episode: {failure.problem}")
            error.add_note(failure.traceback)
            raise error
        return answer

    def kept(self, carry: PythonCarry) -> PythonCarry:
        """A state that stays when the loop goes on: the carry, of which `advance` makes itself a copy."""
        return carry

    def under_way(self) -> dict[str, Any]:
        """What a checkpoint must know beside the carry: which episodes are being played, and how far."""
        return {
            "episodes": [episode for episode, _, _ in self._marks],
            "actions": [own[:length] for _, own, length in self._marks],
        }

    def restore(self, about: dict[str, Any]) -> None:
        """Play the episodes under way again."""
        self.episodes = list(about["episodes"])
        self._reset(range(self.env.copies))
        played: list[list[int]] = about["actions"]
        for t in range(max(map(len, played))):
            moves = np.array([own[t] if t < len(own) else REST for own in played])
            answer = self._play(moves)
            if (answer.terminated | answer.truncated).any():
                raise UserError(
                    f"{self.env.name} does not repeat itself under the same seed: it cannot be resumed"
                )

    def evaluate(self, policy: State, episodes: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths [1, episodes] of greedy episodes, in the first copy."""
        played = [self._evaluate(lane_of(policy), episode) for episode in range(episodes)]
        returns, lengths = (np.array(column)[None] for column in zip(*played, strict=True))
        return returns, lengths

    def _evaluate(self, policy: State, episode: int) -> tuple[float, int]:
        others: list[int | None] = [None] * (self.env.copies - 1)
        key = key_for(self.key, "evaluate", episode)
        answer = self._asked(self.env.reset([_episode_seed(self.seed, EVALUATION, 0, episode), *others]))
        total, time, ended = 0.0, 0, False
        while not ended and time < (self.env.own_limit or LONGEST_EVALUATION):
            obs = self.observer.scaled(answer.obs[0], time)
            action = int(choose_greedily(self.algorithm, policy, key, obs, np.int32(time)))
            answer = self._asked(
                self.env.step(np.array([action] + [REST] * len(others))), [time + 1] * self.env.copies
            )
            total, time = total + float(answer.reward[0]), time + 1
            ended = bool(answer.terminated[0] | answer.truncated[0])
        return total, time


def _episode_seed(seed: int, use: int, copy: int, episode: int) -> int:
    return int(np.random.SeedSequence([seed, use, copy, episode]).generate_state(1)[0])
