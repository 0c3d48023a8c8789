"""The yardstick: Neural-E³'s kernels in plain eager PyTorch, on one thread.

What one would write without a compiler: the members batched with `baddbmm`, autograd, `torch.optim.Adam`, a tree of
Python objects. Weights come from our own networks, so that both sides compute the same numbers.
"""

import math
import random
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

RARELY_ENDS = -5.0


class Dynamics(torch.nn.Module):
    """E Bernoulli dynamics models with `conditioning="input"`, every parameter with a leading axis E."""

    def __init__(self, weights: dict[str, np.ndarray]):
        super().__init__()
        for name, value in weights.items():
            self.register_parameter(name, torch.nn.Parameter(torch.tensor(value)))
        self.members = torch.arange(self.bias.shape[0])[:, None]

    def forward(self, obs: Tensor, action: Tensor | int, time: Tensor | int) -> tuple[Tensor, Tensor, Tensor]:
        """[E, B, D] with one action and time for all or [E, B] of them: logits, rewards, termination logits."""
        if isinstance(action, int):
            shift = (self.bias + self.act[:, action] + self.clock[:, time])[:, None]
        else:
            shift = self.bias[:, None] + self.act[self.members, action] + self.clock[self.members, time]
        x = torch.relu(torch.baddbmm(shift, obs - 0.5, self.observe.mT))
        x = torch.relu(torch.baddbmm(self.hidden_bias[:, None], x, self.hidden.mT))
        out = torch.baddbmm(self.head_bias[:, None], x, self.head.mT)
        return out[..., :-2], out[..., -2], out[..., -1] + RARELY_ENDS


class LoopedDynamics(torch.nn.Module):
    """The same members called one after the other, the way a list of networks is used; one action and time for all."""

    def __init__(self, models: Dynamics):
        super().__init__()
        self.members = models.members
        self.each = [
            {name: weight[e] for name, weight in models.named_parameters()}
            for e in range(len(models.members))
        ]

    def forward(self, obs: Tensor, action: int, time: int) -> tuple[Tensor, Tensor, Tensor]:
        outs = []
        for w, own in zip(self.each, obs, strict=True):
            x = torch.relu(F.linear(own - 0.5, w["observe"], w["bias"]) + w["act"][action] + w["clock"][time])
            x = torch.relu(F.linear(x, w["hidden"], w["hidden_bias"]))
            outs.append(F.linear(x, w["head"], w["head_bias"]))
        out = torch.stack(outs)
        return out[..., :-2], out[..., -2], out[..., -1] + RARELY_ENDS


class Replay:
    """Columns of transitions, drawn uniformly."""

    def __init__(self, columns: dict[str, np.ndarray]):
        whole = ("action", "time")
        self.columns = {
            name: torch.tensor(value.astype(np.int64 if name in whole else np.float32))
            for name, value in columns.items()
        }
        self.size = len(columns["action"])

    def sample(self, *shape: int) -> dict[str, Tensor]:
        index = torch.randint(self.size, shape)
        return {name: column[index] for name, column in self.columns.items()}


def model_loss(models: Dynamics, rows: dict[str, Tensor]) -> Tensor:
    """Every member's mean loss over its own rows [E, B]."""
    logits, reward, ending = models(rows["obs"], rows["action"], rows["time"])
    bits = F.binary_cross_entropy_with_logits(logits, rows["next_obs"], reduction="none").mean(-1)
    ends = F.binary_cross_entropy_with_logits(ending, rows["terminated"], reduction="none")
    return (bits + 0.5 * (reward - rows["reward"]) ** 2 + ends).mean(-1)


def clip_each_member(models: torch.nn.Module, clip: float) -> None:
    gradients = [weight.grad for weight in models.parameters()]
    norm = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
    scale = clip / norm.clamp(min=clip)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))


def fit_models(
    models: Dynamics, optimiser: torch.optim.Optimizer, replay: Replay, updates: int, batch: int, clip: float
) -> None:
    for _ in range(updates):
        loss = model_loss(models, replay.sample(len(models.members), batch)).sum()
        optimiser.zero_grad()
        loss.backward()
        clip_each_member(models, clip)
        optimiser.step()


class QNetwork(torch.nn.Module):
    """Two hidden layers from (observation, time step) to a value per action, one head for all time steps."""

    def __init__(self, weights: dict[str, np.ndarray]):
        super().__init__()
        for name, value in weights.items():
            self.register_parameter(name, torch.nn.Parameter(torch.tensor(value)))

    def forward(self, obs: Tensor, time: Tensor) -> Tensor:
        horizon = self.clock.shape[0]
        x = torch.relu(F.linear(obs - 0.5, self.observe) + self.clock[time.clamp(max=horizon - 1)])
        x = torch.relu(F.linear(x, self.hidden, self.hidden_bias))
        values = F.linear(x, self.head[0], self.head_bias[0])
        return values * (time < horizon)[..., None]


def double_q_targets(online: QNetwork, target: QNetwork, rows: dict[str, Tensor], discount: float) -> Tensor:
    with torch.no_grad():
        after = rows["time"] + 1
        chosen = online(rows["next_obs"], after).argmax(-1, keepdim=True)
        bootstrap = target(rows["next_obs"], after).gather(-1, chosen)[:, 0]
        return rows["reward"] + discount * (1 - rows["terminated"]) * bootstrap


def dqn_loss(online: QNetwork, target: QNetwork, rows: dict[str, Tensor], discount: float) -> Tensor:
    taken = online(rows["obs"], rows["time"]).gather(-1, rows["action"][:, None])[:, 0]
    return F.smooth_l1_loss(taken, double_q_targets(online, target, rows, discount))


def fit_dqn(
    online: torch.nn.Module,
    target: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
    replay: Replay,
    updates: int,
    batch: int,
    discount: float,
    clip: float,
    period: int,
    loss: Callable[..., Tensor] = dqn_loss,
) -> None:
    for update in range(1, updates + 1):
        optimiser.zero_grad()
        loss(online, target, replay.sample(batch), discount).backward()
        torch.nn.utils.clip_grad_norm_(online.parameters(), clip)
        optimiser.step()
        if update % period == 0:
            target.load_state_dict(online.state_dict())


def max_disagreement(obs: Tensor, reward: Tensor, reward_scale: float) -> Tensor:
    """Distance "mean": [E, D] means of the bits and [E] mean rewards, the largest over pairs of members."""
    bits = (obs[:, None] - obs[None]).abs().sum(-1)
    rewards = (reward[:, None] - reward[None]).abs() * reward_scale
    return (bits + rewards).max() / (obs.shape[-1] + 1)


class Node:
    def __init__(self, particles: Tensor, time: int, actions: int):
        self.particles = particles
        self.time = time
        self.children: list[Node | None] = [None] * actions
        self.visits = [0] * actions
        self.reward = 0.0
        self.discount = 1.0
        self.count = 1
        self.value = 0.0
        # Of the path from the root: return so far, chance to be alive, first action.
        self.total = 0.0
        self.weight = 1.0
        self.first = -1


class Search:
    """Tree search over the ensemble with a node's particles kept in it; `settings` are those of our `TreeSearch`."""

    def __init__(
        self,
        models: Dynamics,
        value: QNetwork | None,
        settings,
        horizon: int,
        actions: int,
        reward_scale: float,
        noise: Tensor | None = None,
    ):
        self.models, self.value, self.settings, self.noise = models, value, settings, noise
        self.horizon, self.actions, self.reward_scale = horizon, actions, reward_scale
        self.noise_given = noise is not None
        self.calls = 0
        self.model_steps = 0

    def advance(self, particles: Tensor, action: int, time: int) -> tuple[Tensor, float, float]:
        """One step of every particle: (particles, explore reward, chance to go on)."""
        self.model_steps += 1
        logits, reward, ending = self.models(particles, action, time)
        uniform = torch.rand(particles.shape) if self.noise is None else self.noise[time]
        drawn = (uniform < torch.sigmoid(logits)).float()
        utility = max_disagreement(drawn.mean(1), reward.mean(1), self.reward_scale)
        last = time + 1 >= self.horizon
        goes_on = 0.0 if last else 1.0 - torch.sigmoid(ending).mean().item()
        return drawn, utility.item(), goes_on

    def leaf_value(self, node: Node) -> float:
        if self.settings.leaf == "zero" or node.time >= self.horizon:
            return 0.0
        if self.settings.leaf == "value":
            return self.value(node.particles, torch.tensor(node.time)).mean((0, 1)).max().item()
        particles, total, weight = node.particles, 0.0, 1.0
        for time in range(node.time, self.horizon):
            action = random.randrange(self.actions)
            particles, reward, goes_on = self.advance(particles, action, time)
            total += weight * reward
            weight *= goes_on
        return total

    def expand(self, parent: Node, action: int) -> Node:
        particles, reward, goes_on = self.advance(parent.particles, action, parent.time)
        child = Node(particles, parent.time + 1, self.actions)
        child.reward, child.discount = reward, goes_on
        child.value = self.leaf_value(child)
        child.total = parent.total + parent.weight * reward
        child.weight = parent.weight * goes_on
        child.first = action if parent.first < 0 else parent.first
        parent.children[action] = child
        return child

    def select(self, node: Node) -> int:
        """UCB1; an untried action first, at random."""
        untried = [action for action, child in enumerate(node.children) if child is None]
        if untried:
            return random.choice(untried)
        log = math.log(node.count)

        def score(action: int) -> float:
            child = node.children[action]
            bonus = math.sqrt(log / node.visits[action])
            return child.reward + child.discount * child.value + self.settings.ucb * bonus

        return max(range(self.actions), key=score)

    @torch.no_grad()
    def plan(self, obs: Tensor, time: int) -> tuple[int, float]:
        """The chosen first action and the mean return of the playouts."""
        settings = self.settings
        self.calls += 1
        if settings.common_noise and not self.noise_given:
            self.noise = torch.rand(self.horizon, settings.particles, len(obs))
        particles = obs.expand(len(self.models.members), settings.particles, -1)
        root = Node(particles, time, self.actions)
        best = [-math.inf] * self.actions
        for _ in range(settings.playouts):
            path, node, action = [], root, -1
            while node is not None and node.time < self.horizon:
                action = self.select(node)
                path.append((node, action))
                leaf, node = node, node.children[action]
            if node is None:
                node = self.expand(leaf, action)
                best[node.first] = max(best[node.first], node.total + node.weight * node.value)
            outcome = node.value
            for parent, taken in reversed(path):
                child = parent.children[taken]
                outcome = child.reward + child.discount * outcome
                parent.value += (outcome - parent.value) / (parent.count + 1)
                parent.count += 1
                parent.visits[taken] += 1
        means = [c.reward + c.discount * c.value if c else -math.inf for c in root.children]
        values = best if settings.choice == "best" else means
        scores = root.visits if settings.choice == "visits" else values
        action = max(range(self.actions), key=scores.__getitem__)
        return action, values[action]


def dynamics(members) -> Dynamics:
    """From our own ensemble of `BernoulliDynamics`."""
    return Dynamics({k: np.array(v) for k, v in vars(members.weights).items() if v is not None})


def q_network(network) -> QNetwork:
    """From our own `QNetwork` with a clock and without heads."""
    names = ("observe", "clock", "hidden", "hidden_bias", "head", "head_bias")
    return QNetwork({name: np.array(getattr(network, name)) for name in names})


def replay(ours) -> Replay:
    """From the filled part of our own `Replay`."""
    return Replay({name: np.array(column[: int(ours.size)]) for name, column in ours.rows._asdict().items()})
