"""A uniformly random agent on the combination lock: how far it gets, and a picture of where it ended.

Run with `make demo`, or `python examples/demo.py --episodes 100`.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
from matplotlib import image

from e3rl.envs.base import episode_return, rollout, uniform_policy
from e3rl.envs.lock import DEAD, CombinationLock, LockState


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--horizon", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    args = parser.parse_args()

    env = CombinationLock(horizon=args.horizon, seed=args.seed)
    policy = uniform_policy(env.num_actions)
    keys = jax.random.split(jax.random.key(args.seed), args.episodes)
    episodes = jax.jit(jax.vmap(lambda key: rollout(env, policy, key)))(keys)

    returns = np.asarray(jax.vmap(episode_return)(episodes))
    latent = np.asarray(episodes.next_obs)[:, :, : DEAD + 1].argmax(axis=-1)
    survived = (latent != DEAD).sum(axis=1)
    print(f"combination lock, horizon {env.horizon}: {args.episodes} episodes of uniformly random play")
    print(f"mean return {returns.mean():.4f}, optimal {env.optimal_return:.4f}")
    print(f"paid episodes {np.mean(returns > 0):.5f}, expected {env.uniform_success_probability:.5f}")
    print(f"steps survived: mean {survived.mean():.2f}, best {survived.max()}")

    best = int(survived.argmax())
    step = min(int(survived[best]), env.horizon - 1)
    args.out.mkdir(parents=True, exist_ok=True)
    picture = args.out / "lock.png"
    state = LockState(np.int32(step + 1), latent[best, step])
    image.imsave(picture, env.render(state))
    print(f"the luckiest episode's end: {picture}")


if __name__ == "__main__":
    main()
