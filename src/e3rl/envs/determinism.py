"""Is an environment deterministic? Graph search (App. B.2.1) needs that its steps are, MCTS (App. B.2.2) does not."""

import copy
import random
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.blame import RAISED
from e3rl.types import Key, blank_key

TWINS = 3
"""How often a functional environment plays the same episode."""


def looks_deterministic(env: AbstractEnvironment | GymnasiumEnvironment, key: Key, steps: int = 500) -> bool:
    """Does the same action in the same state always have the same outcome, along `steps` of uniformly random play?

    Outcomes are next observation, reward and termination. The start of an episode may be random and does not
    count ("the start state can still be stochastic", App. B.2.1). An environment on the host that cannot be
    copied, or that fails, is called stochastic, because MCTS is right for both kinds; it must be reset before it
    is used again.
    """
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    if isinstance(env, GymnasiumEnvironment):
        return _twins_agree(env, generator, steps)
    return not _step_reads_its_key(env) or _keys_agree(env, generator, steps)


def _step_reads_its_key(env: AbstractEnvironment) -> bool:
    """Does anything that `step` returns depend on its key? Read off the program, without running it."""
    key = blank_key()
    state, _ = jax.eval_shape(env.reset, key)
    program = jax.make_jaxpr(env.step)(key, state, jax.ShapeDtypeStruct((), jnp.int32)).jaxpr
    needed = {id(variable) for variable in program.outvars}
    for line in reversed(program.eqns):
        if any(id(variable) in needed for variable in line.outvars):
            needed |= {id(variable) for variable in line.invars}
    return id(program.invars[0]) in needed


def _keys_agree(env: AbstractEnvironment, generator: np.random.Generator, steps: int) -> bool:
    """Plays from the same start several times in lockstep, with different keys and the same actions."""
    reset, step = eqx.filter_jit(env.reset), eqx.filter_jit(env.step)
    running = False
    for _ in range(steps):
        first, *keys = jax.random.split(jax.random.key(generator.integers(2**31)), TWINS + 1)
        if not running:
            states = [reset(first)[0]] * TWINS
        action = jnp.int32(generator.integers(env.num_actions))
        results = [step(key, state, action) for key, state in zip(keys, states, strict=True)]
        states = [result[0] for result in results]
        if not eqx.tree_equal(*(result[1:4] for result in results)):
            return False
        running = not any(terminated or truncated for *_, terminated, truncated in results)
    return True


def _twins_agree(env: GymnasiumEnvironment, generator: np.random.Generator, steps: int) -> bool:
    """Plays the environment in lockstep with a copy whose random generators are others."""
    running = False
    try:
        for _ in range(steps):
            if not running:
                env.reset(generator.integers(2**31))
                twin = _twin(env, generator)
            action = generator.integers(env.num_actions)
            # Global generators need no care: what the first has drawn, the second does not draw again.
            obs, reward, terminated, truncated = env.step(action)
            twin_obs, twin_reward, twin_terminated, twin_truncated = twin.step(action)
            if not np.array_equal(obs, twin_obs) or (reward, terminated) != (twin_reward, twin_terminated):
                return False
            running = not (terminated or truncated or twin_truncated)
    except RAISED:  # somebody else's environment can raise anything, and so can copying it
        return False
    return True


def _twin(env: GymnasiumEnvironment, generator: np.random.Generator) -> GymnasiumEnvironment:
    """A copy with other random generators, wherever in the environment and its wrappers they are.

    The memo of one deep copy lists everything in it by identity; the memo given to a second one says what to
    put in place of what.
    """
    found: dict[int, Any] = {}
    copy.deepcopy(env, found)
    others = {place: _reseeded(thing, generator) for place, thing in found.items() if _is_random(thing)}
    return copy.deepcopy(env, others)


def _is_random(thing: Any) -> bool:
    if isinstance(thing, jax.Array):
        raw_key = thing.dtype == jnp.uint32 and thing.shape == (2,)
        return raw_key or jnp.issubdtype(thing.dtype, jax.dtypes.prng_key)
    return isinstance(thing, np.random.Generator | np.random.RandomState | random.Random)


def _reseeded(thing: Any, generator: np.random.Generator) -> Any:
    seed = int(generator.integers(2**31))
    if isinstance(thing, np.random.Generator):
        return np.random.Generator(type(thing.bit_generator)(seed))
    return jax.random.fold_in(thing, seed) if isinstance(thing, jax.Array) else type(thing)(seed)
