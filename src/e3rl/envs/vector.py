"""Episodes of Gymnasium environments, several copies at once through `gymnasium.vector`."""

import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Array, Bool, Float, Float32, Int, Int32

from e3rl.envs.adapter import BadReturn, GymnasiumEnvironment, one_line
from e3rl.envs.encoding import Encoding
from e3rl.types import Key, Trajectory, UserError

DEFAULT_TIME_LIMIT = 1000
"""Steps after which an episode is cut where neither the environment nor the caller sets a limit."""
REST = -1
"""In place of an action: the copy is not stepped."""
NO_EPISODE = -1
DISABLED = AutoresetMode.DISABLED

Plan: TypeAlias = Callable[
    [Key, Float32[np.ndarray, "n *obs"], Int32[np.ndarray, " n"], Bool[np.ndarray, " n"]],
    tuple[Int[Array, "n L"], Int[Array, " n"]],
]
"""(key, observations, time steps, which copies play) -> (action sequences, how many of each to execute before planning
again). What it returns for a copy that does not play is not looked at."""


class EpisodeBroken(UserError):
    """The environment failed in the middle of an episode; `trajectory` holds every step before that."""

    def __init__(self, message: str, trajectory: Trajectory):
        super().__init__(message)
        self.trajectory = trajectory


class _Copy(gymnasium.Env):
    """One copy of the environment, as `HostEnvironments` drives it.

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
        """Start an episode; a copy that is given no seed goes on with the one it has."""
        if seed is None:
            return self._obs, {}
        try:
            self._obs = self._env.reset(seed)
        except Exception as error:
            return self._obs, _failure(error)
        return self._obs, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if action == REST:
            return self._obs, 0.0, False, False, {"terminated": False, "truncated": False}
        try:
            self._obs, reward, terminated, truncated = self._env.step(action)
        except Exception as error:
            return self._obs, 0.0, False, False, _failure(error)
        return self._obs, reward, False, False, {"terminated": terminated, "truncated": truncated}

    def close(self) -> None:
        if self._closes:
            self._env.close()


def _failure(error: Exception) -> dict[str, Any]:
    text = error.problem if isinstance(error, BadReturn) else f"{type(error).__name__}: {one_line(error)}"
    return {"terminated": False, "truncated": False, "failure": text, "traceback": traceback.format_exc()}


class HostEnvironments:
    """Copies of one Gymnasium environment that play together, so that planning is one call on a batch of fixed shape.

    A constructor is called once a copy. An environment already built cannot be copied: its episodes run one
    after the other, and closing it stays with its owner. With `asynchronous` every copy lives in a process of
    its own, which pays when a step takes milliseconds; the constructor is then called there for the copy, and
    twice here to see what it makes. A script needs Python's usual `if __name__ == "__main__":` for that.
    """

    num_actions: int
    encoding: Encoding
    copies: int
    time_limit: int
    """H: steps after which an episode is cut, whoever cuts it."""
    name: str

    def __init__(
        self,
        make: Callable[[], GymnasiumEnvironment] | GymnasiumEnvironment,
        copies: int = 1,
        time_limit: int | None = None,
        asynchronous: bool = False,
    ):
        if copies < 1:
            raise UserError(f"copies must be at least 1, got {copies}")
        if time_limit is not None and time_limit < 1:
            raise UserError(f"time_limit must be at least 1, got {time_limit}")
        first = make if isinstance(make, GymnasiumEnvironment) else make()
        self.name, self.num_actions, self.encoding = first.name, first.num_actions, first.encoding
        limits = [limit for limit in (first.time_limit, time_limit) if limit is not None]
        self.time_limit = min(limits, default=DEFAULT_TIME_LIMIT)
        self.copies = 1 if isinstance(make, GymnasiumEnvironment) else copies
        self._vector: VectorEnv
        if isinstance(make, GymnasiumEnvironment):
            self._vector = SyncVectorEnv([lambda: _Copy(first, closes=False)], autoreset_mode=DISABLED)
        elif asynchronous:
            first.close()
            makers = [lambda: _Copy(make(), closes=True)] * copies
            # Spawned, because a fork of a process in which JAX has started threads can hang.
            try:
                self._vector = AsyncVectorEnv(makers, context="spawn", autoreset_mode=DISABLED)
            except (EOFError, ConnectionError) as error:
                raise UserError(
                    f"{self.name}: a process could not make its copy: register the id in a module that is "
                    "imported, not under __main__"
                ) from error
        else:
            makers = [lambda: _Copy(make(), closes=True)] * (copies - 1)
            makers.insert(0, lambda: _Copy(first, closes=True))
            self._vector = SyncVectorEnv(makers, autoreset_mode=DISABLED)

    def close(self) -> None:
        self._vector.close()

    def play(self, plan: Plan, key: Key, episodes: int, episodes_before: int = 0) -> Trajectory:
        """Play episodes to their ends: NumPy arrays [episodes, H, ...], in the order in which they began.

        Every call of `plan` is for all copies: they execute their sequences open-loop, wait for the one with the
        longest, and plan again together. A copy whose episode has ended starts the next one before that. The
        same key repeats the same episodes. `episodes_before` only counts in the message of `EpisodeBroken`.
        """
        key_seeds, key_plans = jax.random.split(key)
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key_seeds)))
        seeds = generator.integers(2**31, size=episodes).tolist()
        table = _Table(self.copies, episodes, self.time_limit, self.encoding.shape, episodes_before)
        rounds = 0
        while table.start_episodes():
            fresh = table.running & (table.time == 0)
            if fresh.any():
                chosen = [seeds[e] if new else None for e, new in zip(table.episode, fresh, strict=True)]
                table.obs, info = self._ask(table, 0, self._vector.reset, seed=chosen)
                self._raise_failure(table, 0, info)
            key_round = jax.random.fold_in(key_plans, rounds)
            plans, lengths = plan(key_round, table.obs, table.time.copy(), table.running)
            self._execute(table, np.asarray(plans), np.asarray(lengths))
            rounds += 1
        return table.rows

    def _execute(
        self, table: "_Table", plans: Int[np.ndarray, "n L"], lengths: Int[np.ndarray, " n"]
    ) -> None:
        lengths = np.maximum(lengths, 1)  # an empty plan would never end
        for t in range(plans.shape[1]):
            moving = table.running & (t < lengths)
            if not moving.any():
                break
            actions = np.where(moving, plans[:, t], REST)
            obs, reward, _, _, info = self._ask(table, 1, self._vector.step, actions)
            moved = moving & ~info.get("_failure", np.False_)
            table.record(moved, actions, reward, obs, info["terminated"], info["truncated"])
            self._raise_failure(table, 1, info)

    def _ask(
        self, table: "_Table", ahead: int, question: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """What the vector answers; the process of a copy may be gone for good."""
        try:
            return question(*args, **kwargs)
        except (EOFError, ConnectionError) as error:
            if isinstance(self._vector, AsyncVectorEnv):
                for process in self._vector.processes:
                    process.terminate()
                self._vector.closed = True
            copy = int(table.running.argmax())
            raise table.broken(self.name, copy, ahead, "the process of a copy ended") from error

    def _raise_failure(self, table: "_Table", ahead: int, info: dict[str, Any]) -> None:
        if "failure" in info:
            copy = int(info["_failure"].argmax())
            error = table.broken(self.name, copy, ahead, info["failure"][copy])
            error.add_note(info["traceback"][copy])
            raise error


class _Table:
    """Which copy is where in which episode, and everything they have seen."""

    def __init__(
        self, copies: int, episodes: int, time_limit: int, shape: tuple[int, ...], episodes_before: int
    ):
        self.episode = np.full(copies, NO_EPISODE)
        self.time = np.zeros(copies, np.int32)
        self.obs = np.zeros((copies, *shape), np.float32)
        self._started = 0
        self._episodes_before = episodes_before
        frames, steps = (episodes, time_limit, *shape), (episodes, time_limit)
        self._columns: list[Any] = [
            np.zeros(frames, np.float32),
            np.zeros(steps, np.int32),
            np.zeros(steps, np.float32),
            np.zeros(frames, np.float32),
            *(np.zeros(steps, bool) for _ in range(3)),
        ]
        self.rows = Trajectory(*self._columns)

    @property
    def running(self) -> Bool[np.ndarray, " n"]:
        return self.episode != NO_EPISODE

    def start_episodes(self) -> bool:
        """Give idle copies the next episodes; False when all have ended."""
        idle = np.flatnonzero(~self.running)[: len(self.rows.valid) - self._started]
        self.episode[idle] = self._started + np.arange(len(idle))
        self.time[idle] = 0
        self._started += len(idle)
        return bool(self.running.any())

    def record(
        self,
        moved: Bool[np.ndarray, " n"],
        action: Int[np.ndarray, " n"],
        reward: Float[np.ndarray, " n"],
        next_obs: Float32[np.ndarray, "n *obs"],
        terminated: Bool[np.ndarray, " n"],
        truncated: Bool[np.ndarray, " n"],
    ) -> None:
        """One step of the copies that `moved`."""
        truncated = truncated | (self.time + 1 >= self.rows.valid.shape[1])
        place = self.episode[moved], self.time[moved]
        step = (self.obs, action, reward, next_obs, terminated, truncated, moved)
        for column, values in zip(self._columns, step, strict=True):
            column[place] = values[moved]
        self.obs = next_obs
        self.time[moved] += 1
        self.episode[moved & (terminated | truncated)] = NO_EPISODE

    def broken(self, name: str, copy: int, ahead: int, problem: str) -> EpisodeBroken:
        """The failure of `copy` at the step after its last good one (`ahead` = 1) or in its reset (0)."""
        episode = self._episodes_before + self.episode[copy] + 1
        place = f"{name}, episode {episode}, step {self.time[copy] + ahead}"
        under_way = self.running & (self.time > 0)
        *_, truncated, valid = self._columns
        truncated[self.episode[under_way], self.time[under_way] - 1] = True
        kept = Trajectory(*(column[valid[:, 0]] for column in self._columns))
        return EpisodeBroken(f"{place}: {problem}", kept)
