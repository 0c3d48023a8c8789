"""Baselines on Gymnasium environments: acting and learning compiled, stepping in Python."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped

from e3rl.baselines.base import AbstractBaseline, Metrics, Rollout, State
from e3rl.baselines.compiled import Ended
from e3rl.baselines.observer import Observer, horizon_of
from e3rl.envs.adapter import GymnasiumEnvironment, make, one_line
from e3rl.envs.base import AbstractEnvironment
from e3rl.neural.lanes import key_for
from e3rl.types import Key, UserError

STEPS_PER_CALL = 1_000
LONGEST_EVALUATION = 10_000
"""Steps after which a greedy episode is given up where the environment has no limit of its own."""
TRAINING, EVALUATION = 0, 1


class HostCarry(NamedTuple):
    """What training goes on from, beside the episodes under way."""

    state: State
    iteration: Int[Array, ""]


@eqx.filter_jit
def _act(algorithm: AbstractBaseline, state: State, key: Key, obs: Any) -> tuple[Array, Any]:
    return algorithm.act(state, key, obs)


@eqx.filter_jit(donate="all-except-first")
def _learn(call: tuple[AbstractBaseline, Key, Rollout], state: State) -> tuple[State, Metrics]:
    algorithm, key, rollout = call
    return algorithm.learn(state, key, rollout)


@eqx.filter_jit
def choose_greedily(algorithm: AbstractBaseline, policy: State, key: Key, obs: Any, time: Any) -> Array:
    return algorithm.greedy(policy, key, obs, time)


@eqx.filter_jit
def fresh_state(algorithm: AbstractBaseline, key: Key, shape: tuple[int, ...], actions: int) -> State:
    return algorithm.init(key_for(key, "init"), shape, actions)


@eqx.filter_jit
def _keys(key: Key, iteration: Int[Array, ""], count: int) -> Shaped[Array, " {count}"]:
    return jax.random.split(key_for(key, "train", iteration), count)


def copies_of(
    made: GymnasiumEnvironment, env: Any, options: Mapping[str, Any], count: int
) -> list[GymnasiumEnvironment]:
    """`made` and `count` − 1 more like it, from the id it was made from."""
    others: list[AbstractEnvironment | GymnasiumEnvironment] = []
    for _ in range(count - 1):
        if isinstance(env, str):
            others.append(make(env, **options))
        elif made.env.spec is not None:
            others.append(GymnasiumEnvironment(gymnasium.make(made.env.spec)))
        else:
            raise UserError("an environment without an id cannot be copied: set copies=1, or register it")
    return [made, *(other for other in others if isinstance(other, GymnasiumEnvironment))]


class HostProgram:
    """Trains one agent on n copies of an environment that lives in Python.

    Every episode has a seed of its own, so that those under way at a checkpoint are found again by playing their
    actions once more.
    """

    lanes = 1

    def __init__(
        self, algorithm: AbstractBaseline, envs: Sequence[GymnasiumEnvironment], seed: int, clock: bool
    ):
        self.algorithm = algorithm
        self.envs = envs
        self.seed = seed
        self.key = jax.random.key(seed)
        self.observer = Observer(envs[0].observation_space, horizon_of(envs[0], clock))
        self.size = max(1, STEPS_PER_CALL // (algorithm.steps * algorithm.copies))
        self.episodes = [0] * len(envs)
        self.actions: list[list[int]] = [[] for _ in envs]
        self.returns = np.zeros(len(envs), np.float32)
        self.obs = np.zeros((len(envs), *self.observer.shape), np.float32)

    def begin(self) -> HostCarry:
        for copy in range(len(self.envs)):
            self._reset(copy)
        state = fresh_state(self.algorithm, self.key, self.observer.shape, self.envs[0].num_actions)
        return _lane(HostCarry(state, jnp.array(0, jnp.int32)))

    def advance(self, carry: HostCarry, count: int) -> tuple[HostCarry, Ended, dict[str, np.ndarray]]:
        """`count` more iterations; reports have the axes [count, 1]."""
        state, iteration = jax.tree.map(lambda leaf: leaf[0], carry)
        reports = []
        for i in range(int(iteration), int(iteration) + count):
            keys = _keys(self.key, jnp.array(i, jnp.int32), self.algorithm.steps + 1)
            rows, ended = zip(*(self._step(state, key) for key in keys[1:]), strict=True)
            rollout = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
            state, metrics = _learn((self.algorithm, keys[0], rollout), state)
            reports.append((jax.tree.map(lambda *leaves: np.stack(leaves), *ended), metrics))
        ended, metrics = jax.tree.map(lambda *leaves: np.stack(leaves)[:, None], *reports)
        return _lane(HostCarry(state, iteration + count)), ended, metrics

    def _step(self, state: State, key: Key) -> tuple[Rollout, Ended]:
        """One step of every copy."""
        obs = self.obs.copy()
        chosen, extra = _act(self.algorithm, state, key, obs)
        action, extra = jax.tree.map(np.asarray, (chosen, extra))
        n = len(self.envs)
        next_obs, reward = np.empty_like(obs), np.empty(n, np.float32)
        terminated, truncated = np.empty(n, bool), np.empty(n, bool)
        lengths = np.empty(n, np.int32)
        for copy in range(n):
            seen, reward[copy], terminated[copy], truncated[copy] = self._play(copy, int(action[copy]))
            lengths[copy] = len(self.actions[copy])
            next_obs[copy] = seen
        returns, ended = self.returns.copy(), terminated | truncated
        for copy in np.flatnonzero(ended).tolist():
            self.episodes[copy] += 1
            self._reset(copy)
        row = Rollout._make((obs, action, reward, next_obs, terminated, truncated, extra))
        return row, Ended._make((ended, returns, lengths))

    def _play(self, copy: int, action: int) -> tuple[np.ndarray, float, bool, bool]:
        env, time = self.envs[copy], len(self.actions[copy])
        seen, reward, terminated, truncated = _asked(env, f"step {time + 1}", env.step, action)
        self.actions[copy].append(action)
        self.returns[copy] += reward
        self.obs[copy] = self.observer.scaled(seen, len(self.actions[copy]))
        return self.obs[copy], reward, terminated, truncated

    def _reset(self, copy: int) -> None:
        env, seed = self.envs[copy], _episode_seed(self.seed, TRAINING, copy, self.episodes[copy])
        seen = _asked(env, "reset", env.reset, seed)
        self.obs[copy] = self.observer.scaled(seen, 0)
        self.actions[copy], self.returns[copy] = [], 0.0

    def under_way(self) -> dict[str, Any]:
        """What a checkpoint must know beside the carry: which episodes are being played, and how far."""
        return {"episodes": self.episodes, "actions": self.actions}

    def restore(self, about: dict[str, Any]) -> None:
        """Play the episodes under way again."""
        self.episodes = list(about["episodes"])
        for copy, actions in enumerate(about["actions"]):
            self._reset(copy)
            for action in actions:
                _, _, terminated, truncated = self._play(copy, action)
                if terminated or truncated:
                    name = self.envs[copy].name
                    raise UserError(
                        f"{name} does not repeat itself under the same seed: it cannot be resumed"
                    )

    def evaluate(self, policy: State, episodes: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths [1, episodes] of greedy episodes, in the first copy."""
        policy = jax.tree.map(lambda leaf: leaf[0], policy)
        played = [self._evaluate(policy, episode) for episode in range(episodes)]
        returns, lengths = (np.array(column)[None] for column in zip(*played, strict=True))
        return returns, lengths

    def _evaluate(self, policy: State, episode: int) -> tuple[float, int]:
        env = self.envs[0]
        key = key_for(self.key, "evaluate", episode)
        seen = _asked(env, "reset", env.reset, _episode_seed(self.seed, EVALUATION, 0, episode))
        total, time, ended = 0.0, 0, False
        while not ended and time < (env.time_limit or LONGEST_EVALUATION):
            obs = self.observer.scaled(seen, time)
            action = choose_greedily(self.algorithm, policy, key, obs, np.int32(time))
            seen, reward, terminated, truncated = _asked(env, f"step {time + 1}", env.step, int(action))
            total, time, ended = total + reward, time + 1, terminated or truncated
        return total, time

    def close(self) -> None:
        for env in self.envs:
            env.close()


def _asked(env: GymnasiumEnvironment, what: str, question: Callable[..., Any], argument: int) -> Any:
    """What the environment answers; whatever its author lets escape becomes one line."""
    try:
        return question(argument)
    except UserError:
        raise
    except Exception as error:
        place = f"{env.name}, {what} of an episode"
        raise UserError(f"{place}: {type(error).__name__}: {one_line(error)}") from error


def _lane(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[None], tree)


def _episode_seed(seed: int, use: int, copy: int, episode: int) -> int:
    return int(np.random.SeedSequence([seed, use, copy, episode]).generate_state(1)[0])
