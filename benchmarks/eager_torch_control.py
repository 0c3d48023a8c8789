"""The yardstick for control: graph search, multi-step model updates and offline DQN in plain eager PyTorch.

What one would write without a compiler, on one thread. Weights come from our own networks, so that both sides compute
the same numbers. `Members` batches the ensemble with `baddbmm`; `MembersInAList` calls one network after the other, the
way ensembles usually are. `Search` follows Algorithm DeterministicPlanner line by line; with `all_actions` it takes a
node's actions at once, the most that batching alone can do.
"""

import functools
import math

import eager_torch
import numpy as np
import torch
from eager_torch import RARELY_ENDS
from torch import Tensor
from torch.nn import functional as F

from e3rl.models.layers import CHANGE


class Members(torch.nn.Module):
    """E networks of appendix C.3, every parameter with a leading axis E."""

    def __init__(self, weights: dict[str, np.ndarray], change: float, slope: float):
        super().__init__()
        for name, value in weights.items():
            self.register_parameter(name, torch.nn.Parameter(torch.tensor(value)))
        self.change, self.slope = change, slope
        self.count = self.bias.shape[0]
        self.index = torch.arange(self.count)[:, None]

    def forward(self, obs: Tensor, action: Tensor | int) -> tuple[Tensor, Tensor, Tensor]:
        """[E, B, D] and one action for all or [E, B] of them: next states, rewards, termination logits."""
        gate = self.gate[:, action, None] if isinstance(action, int) else self.gate[self.index, action]
        return self._upper(obs, self._first(obs) * gate)

    def every_action(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[E, D] to [E, A, …]."""
        obs = obs[:, None]
        return self._upper(obs, self._first(obs) * self.gate)

    def _first(self, obs: Tensor) -> Tensor:
        return F.leaky_relu(torch.baddbmm(self.bias[:, None], obs - 0.5, self.observe.mT), self.slope)

    def _upper(self, obs: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = F.leaky_relu(torch.baddbmm(self.hidden_bias[:, None], x, self.hidden.mT), self.slope)
        out = torch.baddbmm(self.head_bias[:, None], x, self.head.mT)
        return obs + self.change * out[..., :-2], out[..., -2], out[..., -1] + RARELY_ENDS


class MembersInAList(torch.nn.Module):
    """The same members called one after the other."""

    def __init__(self, members: Members):
        super().__init__()
        self.change, self.slope, self.count = members.change, members.slope, members.count
        self.each = torch.nn.ModuleList(
            torch.nn.ParameterDict({name: weight[e].detach() for name, weight in members.named_parameters()})
            for e in range(members.count)
        )

    def forward(self, obs: Tensor, action: Tensor | int) -> tuple[Tensor, Tensor, Tensor]:
        outs = []
        for e, w in enumerate(self.each):
            x = F.leaky_relu(F.linear(obs[e] - 0.5, w["observe"], w["bias"]), self.slope)
            x = x * w["gate"][action if isinstance(action, int) else action[e]]
            x = F.leaky_relu(F.linear(x, w["hidden"], w["hidden_bias"]), self.slope)
            outs.append(F.linear(x, w["head"], w["head_bias"]))
        out = torch.stack(outs)
        return obs + self.change * out[..., :-2], out[..., -2], out[..., -1] + RARELY_ENDS


class Search:
    """Explore mode on states alone; `plan` returns the actions and the utility per step of the best node."""

    def __init__(
        self, members: Members | MembersInAList, nodes: int, actions: int, all_actions: bool = False
    ):
        self.members, self.nodes, self.actions, self.all_actions = members, nodes, actions, all_actions
        self.not_elder = torch.ones(actions, actions, dtype=torch.bool).triu()

    @torch.no_grad()
    def plan(self, obs: Tensor) -> tuple[list[int], float]:
        room = self.nodes + self.actions
        self.states = torch.empty(room, self.members.count, len(obs))
        self.mean = torch.empty(room, len(obs))
        self.priority = torch.full((room,), -math.inf)
        self.states[0], self.mean[0], self.priority[0] = obs, obs, math.inf
        self.paths: list[list[int]] = [[]]
        self.utility = [0.0]
        insert = self.insert_all if self.all_actions else self.insert_each
        while len(self.paths) < self.nodes:
            node = int(self.priority[: len(self.paths)].argmax())
            if self.priority[node] == -math.inf:
                break
            self.priority[node] = -math.inf
            insert(node)
        per_step = [u / len(path) for u, path in zip(self.utility[1:], self.paths[1:], strict=True)]
        best = max(range(len(per_step)), key=per_step.__getitem__)
        return self.paths[best + 1], per_step[best]

    def insert_each(self, node: int) -> None:
        state = self.states[node][:, None]
        for action in range(self.actions):
            after, _, ending = self.members(state, action)
            after = after[:, 0]
            new = len(self.paths)
            mean = after.mean(0)
            self.states[new], self.mean[new] = after, mean
            if torch.sigmoid(ending).mean() <= 0.5:
                self.priority[new] = torch.linalg.vector_norm(self.mean[:new] - mean, dim=1).min()
            gained = (after[:, None] - after[None]).square().sum(-1).max()
            self.paths.append([*self.paths[node], action])
            self.utility.append(self.utility[node] + gained.item())

    def insert_all(self, node: int) -> None:
        after, _, ending = self.members.every_action(self.states[node])
        after = after.transpose(0, 1)
        new, end = len(self.paths), len(self.paths) + self.actions
        mean = after.mean(1)
        self.states[new:end], self.mean[new:end] = after, mean
        distance = torch.cdist(mean, self.mean[:end], compute_mode="donot_use_mm_for_euclid_dist")
        distance[:, new:].masked_fill_(self.not_elder, math.inf)
        ended = torch.sigmoid(ending).mean(0) > 0.5
        self.priority[new:end] = distance.amin(1).masked_fill_(ended, -math.inf)
        gained = (after[:, :, None] - after[:, None]).square().sum(-1).amax((1, 2)).tolist()
        for action in range(self.actions):
            self.paths.append([*self.paths[node], action])
            self.utility.append(self.utility[node] + gained[action])


class Replay(eager_torch.Replay):
    """Segments too; observations are scaled once and for all."""

    def sample_segments(self, *shape: int, length: int) -> tuple[dict[str, Tensor], Tensor]:
        """Segments on the last axis, and which of their steps belong to the episode of the first."""
        return self.segments(torch.randint(self.size, shape), length)

    def segments(self, start: Tensor, length: int) -> tuple[dict[str, Tensor], Tensor]:
        step = torch.arange(length)
        index = start[..., None] + step
        inside = index < self.size
        rows = {name: column[index.clamp(max=self.size - 1)] for name, column in self.columns.items()}
        return rows, inside & (rows["time"] == rows["time"][..., :1] + step)


def unrolled_loss(members: Members | MembersInAList, rows: dict[str, Tensor], valid: Tensor) -> Tensor:
    """Every member's loss of App. B.1 over its own segments [E, B, K]."""
    imagined, total = rows["obs"][:, :, 0], torch.zeros(members.count)
    length = valid.shape[-1]
    for j in range(length):
        counts = valid[..., j]
        start = torch.where(counts[..., None], imagined, rows["obs"][:, :, j])
        imagined, reward, ending = members(start, rows["action"][..., j])
        error = (imagined - rows["next_obs"][:, :, j]).square().sum(-1) / members.change**2
        ends = F.binary_cross_entropy_with_logits(ending, rows["terminated"][..., j], reduction="none")
        loss = error + (reward - rows["reward"][..., j]).square() + ends
        total = total + (loss * counts).mean(1)
    return total / length


def clip_each_member(members: Members | MembersInAList, clip: float) -> None:
    if isinstance(members, MembersInAList):
        for own in members.each:
            torch.nn.utils.clip_grad_norm_(own.parameters(), clip)
    else:
        eager_torch.clip_each_member(members, clip)


def fit_models(
    members: Members | MembersInAList,
    optimiser: torch.optim.Optimizer,
    replay: Replay,
    updates: int,
    batch: int,
    unroll: int,
    clip: float,
) -> None:
    for _ in range(updates):
        rows, valid = replay.sample_segments(members.count, batch, length=unroll)
        optimiser.zero_grad()
        unrolled_loss(members, rows, valid).sum().backward()
        clip_each_member(members, clip)
        optimiser.step()


class QNetwork(torch.nn.Module):
    """Two hidden layers from an observation to a value per action, the same at every time step."""

    def __init__(self, weights: dict[str, np.ndarray]):
        super().__init__()
        for name, value in weights.items():
            self.register_parameter(name, torch.nn.Parameter(torch.tensor(value)))

    def forward(self, obs: Tensor) -> Tensor:
        x = torch.relu(F.linear(obs - 0.5, self.observe, self.bias))
        x = torch.relu(F.linear(x, self.hidden, self.hidden_bias))
        return F.linear(x, self.head[0], self.head_bias[0])


def dqn_loss(online: QNetwork, target: QNetwork, rows: dict[str, Tensor], discount: float) -> Tensor:
    """Double DQN."""
    with torch.no_grad():
        chosen = online(rows["next_obs"]).argmax(-1, keepdim=True)
        bootstrap = target(rows["next_obs"]).gather(-1, chosen)[:, 0]
        goal = rows["reward"] + discount * (1 - rows["terminated"]) * bootstrap
    taken = online(rows["obs"]).gather(-1, rows["action"][:, None])[:, 0]
    return F.smooth_l1_loss(taken, goal)


fit_dqn = functools.partial(eager_torch.fit_dqn, loss=dqn_loss)


def members(ours, slope: float) -> Members:
    """From our own ensemble of `MlpDynamics`."""
    return Members({name: np.array(weight) for name, weight in vars(ours.network).items()}, CHANGE, slope)


def q_network(ours) -> QNetwork:
    """From our own `QNetwork` without a horizon."""
    names = ("observe", "bias", "hidden", "hidden_bias", "head", "head_bias")
    return QNetwork({name: np.array(getattr(ours, name)) for name in names})


def replay(rows) -> Replay:
    """From rows of our own `Replay`, scaled."""
    return Replay({name: np.array(column) for name, column in rows._asdict().items()})
