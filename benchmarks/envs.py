"""Uniformly random play: seconds per 1e6 environment steps, alone and vmapped, beside Gymnasium's own.

Ours is one jitted program: every copy is reset, plays `time_limit` steps and is reset again, episode after
episode. A copy whose episode ends early waits for the others, and the steps it waits are not counted.
Observations and rewards go into a checksum, so that the compiler cannot leave them out. Gymnasium's
SyncVectorEnv resets a finished copy by itself; its actions are drawn beforehand, outside the measured time.
"""

import functools
from collections.abc import Callable

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from timing import seconds_per_million

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.registration import ENVIRONMENTS

CONFIG = {
    "unit": "seconds per 1e6 environment steps, median of the repeats",
    "policy": "uniform",
    "environments": list(ENVIRONMENTS),
    "copies": [1, 64, 4096],
    "gymnasium_copies": [1, 64],
    "steps_per_repeat": {"1": 50_000, "64": 500_000, "4096": 2_000_000},
    "gymnasium_steps_per_repeat": 12_800,
    "repeats": 5,
    "seed": 0,
}
QUICK = {
    "environments": ["e3rl/CombinationLock-v0", "e3rl/MountainCar-v0", "e3rl/Acrobot-v1"],
    "copies": [64],
    "gymnasium_copies": [64],
    "steps_per_repeat": {"64": 200_000},
    "gymnasium_steps_per_repeat": 6_400,
    "repeats": 3,
}
TWINS = {"e3rl/MountainCar-v0": "MountainCar-v0", "e3rl/Acrobot-v1": "Acrobot-v1"}


def play(env: AbstractEnvironment, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One episode: how many steps it lasted, and a checksum."""
    key_reset, key_act, key_steps = jax.random.split(key, 3)
    state, obs = env.reset(key_reset)
    actions = jax.random.randint(key_act, (env.time_limit,), 0, env.num_actions)

    def step(carry: tuple, inputs: tuple) -> tuple:
        state, running, steps, checksum = carry
        key, action = inputs
        state, obs, reward, terminated, truncated = env.step(key, state, action)
        checksum += reward + jnp.sum(obs).astype(jnp.float32)
        return (state, running & ~(terminated | truncated), steps + running, checksum), None

    carry = (state, jnp.array(True), jnp.array(0), jnp.sum(obs).astype(jnp.float32))
    keys = jax.random.split(key_steps, env.time_limit)
    (_, _, steps, checksum), _ = jax.lax.scan(step, carry, (keys, actions))
    return steps, checksum


@eqx.filter_jit
def episodes(
    env: AbstractEnvironment, key: jax.Array, count: int, copies: int
) -> tuple[jax.Array, jax.Array]:
    """`count` episodes one after the other in each of `copies` environments."""

    def batch(carry: tuple, key: jax.Array) -> tuple:
        steps, checksum = jax.vmap(functools.partial(play, env))(jax.random.split(key, copies))
        return (carry[0] + steps.sum(), carry[1] + checksum.sum()), None

    return jax.lax.scan(batch, (jnp.array(0), jnp.array(0.0)), jax.random.split(key, count))[0]


def ours(env: AbstractEnvironment, copies: int) -> Callable[[], int]:
    count = max(1, CONFIG["steps_per_repeat"][str(copies)] // (copies * env.time_limit))
    key = jax.random.key(CONFIG["seed"])
    return lambda: int(jax.block_until_ready(episodes(env, key, count, copies))[0])


def gymnasium_sync(env_id: str, copies: int) -> Callable[[], int]:
    envs = gymnasium.vector.SyncVectorEnv([functools.partial(gymnasium.make, env_id) for _ in range(copies)])
    envs.reset(seed=CONFIG["seed"])
    steps = CONFIG["gymnasium_steps_per_repeat"] // copies
    rng = np.random.default_rng(CONFIG["seed"])
    actions = rng.integers(envs.single_action_space.n, size=(steps, copies))

    def run() -> int:
        for action in actions:
            envs.step(action)
        return steps * copies

    return run


def rows() -> list[dict]:
    table = []
    for env_id in CONFIG["environments"]:
        env = ENVIRONMENTS[env_id]()
        runs = {f"x{copies}": ours(env, copies) for copies in CONFIG["copies"]}
        if env_id in TWINS:
            runs |= {
                f"gym x{copies}": gymnasium_sync(TWINS[env_id], copies)
                for copies in CONFIG["gymnasium_copies"]
            }
        times = seconds_per_million(runs, CONFIG["repeats"])
        for copies in CONFIG["copies"]:
            own = times[f"x{copies}"]
            # Gymnasium steps its copies one by one, so 64 of them are the yardstick for 4096 too.
            against = min(copies, max(CONFIG["gymnasium_copies"]))
            theirs = times.get(f"gym x{against}")
            table.append(
                {
                    "name": f"envs/{env_id.removeprefix('e3rl/')}/x{copies}",
                    "ours_s": own["median"],
                    "yardstick": f"gymnasium {TWINS[env_id]} SyncVectorEnv x{against}" if theirs else None,
                    "yardstick_s": theirs["median"] if theirs else None,
                    "ratio": theirs["median"] / own["median"] if theirs else None,
                    "ours_best_s": own["best"],
                    "yardstick_best_s": theirs["best"] if theirs else None,
                    "steps_per_second": 1e6 / own["median"],
                }
            )
    return table
