"""Trees that grow by several nodes at a time, against dictionaries and loops; lines, against paths by hand."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.planners.tree import NOBODY, Child, best_sequence, grow, line_after, nodes_of, rounds_of, ucb1

ACTIONS, DEPTH, PLAYOUTS = 3, 4, 40
UCB = 0.7


@dataclasses.dataclass(frozen=True)
class World:
    """A tree of numbers: an embedding is (depth, number of the action sequence), everything else is looked up."""

    reward: np.ndarray
    discount: np.ndarray
    value: np.ndarray

    @classmethod
    def drawn(cls, seed):
        rng = np.random.default_rng(seed)
        size = ((ACTIONS ** (DEPTH + 1) - 1) // (ACTIONS - 1), ACTIONS)
        ended = rng.random(size) < 0.15
        return cls(
            rng.normal(size=size).astype(np.float32),
            np.where(ended, 0.0, rng.uniform(0.3, 1.0, size)).astype(np.float32),
            rng.normal(size=size).astype(np.float32),
        )

    def expand(self, embedding):
        depth, number = embedding
        every = jnp.arange(ACTIONS, dtype=jnp.int32)
        at = (ACTIONS**depth - 1) // (ACTIONS - 1) + number
        last = depth + 1 >= DEPTH
        discount = jnp.where(last, 0.0, jnp.asarray(self.discount)[at])
        after = (jnp.full(ACTIONS, depth + 1), number * ACTIONS + every)
        return Child(jnp.asarray(self.reward)[at], discount, jnp.asarray(self.value)[at], after)

    def slow(self, depth, number):
        at = (ACTIONS**depth - 1) // (ACTIONS - 1) + number
        discount = [0.0] * ACTIONS if depth + 1 >= DEPTH else self.discount[at].tolist()
        return self.reward[at].tolist(), discount, self.value[at].tolist()


class SlowTree:
    """Nodes in a list, chosen and counted one after the other."""

    def __init__(self, world, batch, line=(), playouts=PLAYOUTS):
        self.world, self.line = world, list(line)
        self.nodes = [self.node(0, 0, None, None, 1.0)]
        self.nodes[0]["outcomes"] = [0.0]
        self.expand([0])
        for index in range(math.ceil(max(playouts - ACTIONS, 0) / (batch * ACTIONS))):
            under_way = {}
            chosen = [
                self.descend(under_way, walker == 0 and index < len(self.line)) for walker in range(batch)
            ]
            self.expand(chosen, room=batch)

    @staticmethod
    def node(depth, number, parent, action, discount):
        return {
            "depth": depth, "number": number, "parent": parent, "action": action, "discount": discount,
            "reward": 0.0, "children": None, "outcomes": [],
        }  # fmt: skip

    def q(self, child):
        node = self.nodes[child]
        return node["reward"] + node["discount"] * float(np.mean(node["outcomes"]))

    def descend(self, under_way, along):
        at, depth = 0, 0
        while (children := self.nodes[at]["children"]) is not None:
            here = [under_way.get((at, a), 0) for a in range(ACTIONS)]
            if along:
                action = self.line[depth]
            else:
                total = len(self.nodes[at]["outcomes"]) + sum(here)
                scores = []
                for a, child in enumerate(children):
                    visits = len(self.nodes[child]["outcomes"]) + here[a]
                    score = self.q(child) + UCB * math.sqrt(math.log(total) / visits)
                    closed = here[a] > 0 and self.nodes[child]["children"] is None
                    scores.append(-math.inf if closed else score)
                action = int(np.argmax(scores))
            under_way[at, action] = here[action] + ACTIONS
            at, depth = children[action], depth + 1
        return at

    def expand(self, chosen, room=1):
        """Every place of a batch is taken, whether or not anything is put there."""
        base, told = len(self.nodes), []
        self.nodes += [None] * room * ACTIONS
        for i, at in enumerate(chosen):
            node = self.nodes[at]
            if at in chosen[:i]:
                told.append([])
            elif at != 0 and node["discount"] == 0.0:
                told.append([float(np.mean(node["outcomes"]))] * ACTIONS)
            else:
                rewards, discounts, values = self.world.slow(node["depth"], node["number"])
                node["children"] = [base + i * ACTIONS + a for a in range(ACTIONS)]
                for a, place in enumerate(node["children"]):
                    below = self.node(node["depth"] + 1, node["number"] * ACTIONS + a, at, a, discounts[a])
                    below.update(reward=rewards[a], outcomes=[values[a]])
                    self.nodes[place] = below
                told.append([r + d * v for r, d, v in zip(rewards, discounts, values, strict=True)])
        for at, outcomes in zip(chosen, told, strict=True):
            # All outcomes of a node go up as their mean, counted as often.
            mean = [float(np.mean(outcomes))] * len(outcomes) if outcomes else []
            self.nodes[at]["outcomes"] += mean
            while self.nodes[at]["parent"] is not None:
                node = self.nodes[at]
                mean = [node["reward"] + node["discount"] * outcome for outcome in mean]
                at = node["parent"]
                self.nodes[at]["outcomes"] += mean


@eqx.filter_jit
def fast(reward, discount, value, batch, line, playouts=PLAYOUTS):
    world = World(reward, discount, value)
    root = (jnp.array(0, jnp.int32), jnp.array(0, jnp.int32))
    # Nothing is tied but what is closed altogether: there the first one is taken.
    ties = jnp.tile(jnp.arange(ACTIONS, 0, -1.0), (nodes_of(playouts, batch, ACTIONS), 1))
    return grow(root, world.expand, ties, UCB, playouts, batch, line)


def grown(world, batch, line=None):
    with jax.numpy_dtype_promotion("standard"):
        return fast(*map(jnp.asarray, (world.reward, world.discount, world.value)), batch, line)


def padded(line):
    return jnp.array([*line, *[NOBODY] * (DEPTH - len(line))], jnp.int32)


@pytest.mark.parametrize("batch", [1, 2, 5])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000), line=st.lists(st.integers(0, ACTIONS - 1), max_size=DEPTH))
def test_a_tree_is_that_of_plain_python(batch, seed, line):
    world = World.drawn(seed)
    tree = jax.tree.map(lambda leaf: np.asarray(leaf)[0], grown(world, batch, padded(line)))
    slow = SlowTree(world, batch, line)
    assert len(slow.nodes) == nodes_of(PLAYOUTS, batch, ACTIONS) == len(tree.parents)
    for index, node in enumerate(slow.nodes):
        if node is None:
            assert tree.node_visits[index] == 0
            continue
        assert tree.node_visits[index] == len(node["outcomes"])
        assert tree.node_values[index] == pytest.approx(np.mean(node["outcomes"]), abs=1e-4)
        assert tree.parents[index] == (NOBODY if node["parent"] is None else node["parent"])
        assert [int(part[index]) for part in tree.embeddings] == [node["depth"], node["number"]]
        if node["children"] is None:
            assert np.all(tree.children_index[index] == NOBODY)
            continue
        assert tree.children_index[index].tolist() == node["children"]
        for action, child in enumerate(node["children"]):
            below = slow.nodes[child]
            assert tree.children_visits[index, action] == len(below["outcomes"])
            assert tree.children_values[index, action] == pytest.approx(np.mean(below["outcomes"]), abs=1e-4)
            assert tree.children_rewards[index, action] == pytest.approx(below["reward"], abs=1e-6)
            assert tree.children_discounts[index, action] == pytest.approx(below["discount"], abs=1e-6)


def test_all_nodes_are_different_and_as_many_as_were_asked_for():
    """Without a line and with few at a time nobody is sent where another is on the way."""
    world = World.drawn(1)
    alike = {"reward": 0.1 * world.reward, "value": 0.1 * world.value}  # so that the search is broad
    world = dataclasses.replace(world, discount=np.ones_like(world.discount), **alike)
    for batch in (1, 2, 3):
        tree = jax.tree.map(np.asarray, grown(world, batch))
        filled = tree.node_visits[0] > 0
        where = [tuple(part[0][i] for part in tree.embeddings) for i in np.flatnonzero(filled)]
        assert len(set(where)) == len(where)
        # Some at the end of the tree were met again, where there is nothing to expand.
        assert filled.sum() > 0.7 * PLAYOUTS
        assert tree.node_visits[0, 0] == 1 + ACTIONS * (1 + batch * rounds_of(PLAYOUTS, batch, ACTIONS))


def paths(tree):
    found, queue, children = {0: []}, [0], np.asarray(tree.children_index[0])
    while queue:
        node = queue.pop()
        for action, child in enumerate(children[node]):
            if child != NOBODY:
                found[int(child)] = [*found[node], action]
                queue.append(int(child))
    return found


@pytest.mark.parametrize("batch", [1, 4])
def test_a_line_is_what_follows_in_the_best_sequence(batch):
    for seed in range(5):
        grew = grown(World.drawn(seed), batch)
        tree, returns = jax.tree.map(np.asarray, grew), {}
        for end, actions in paths(tree).items():
            node, total, weight = 0, 0.0, 1.0
            for action in actions:
                total += weight * tree.children_rewards[0, node, action]
                weight *= tree.children_discounts[0, node, action]
                node = tree.children_index[0, node, action]
            if actions:
                returns[tuple(actions)] = total + weight * tree.raw_values[0, end]
        for action in range(ACTIONS):
            best = max((path for path in returns if path[0] == action), key=returns.__getitem__)
            line = np.asarray(jax.jit(line_after, static_argnums=2)(grew, jnp.array(action), DEPTH))
            assert line.tolist() == [*best[1:], *[NOBODY] * (DEPTH - len(best) + 1)]
            np.testing.assert_allclose(jax.jit(best_sequence)(grew)[action], returns[best], atol=1e-5)


def test_the_line_is_walked_whatever_it_is_worth():
    world = World.drawn(3)
    world = dataclasses.replace(
        world,
        discount=np.full_like(world.discount, 0.9),
        reward=world.reward - 5.0 * (np.arange(ACTIONS) == 2),
    )
    line = [2, 2, 2]
    for batch in (1, 2):
        without, along = grown(world, batch), grown(world, batch, padded(line))
        assert [2, 2, 2, 0] in paths(along).values()
        assert [2, 2, 2, 0] not in paths(without).values()


@pytest.mark.parametrize(
    ("playouts", "batch", "rounds"), [(1, 1, 0), (3, 2, 0), (4, 1, 1), (9, 1, 2), (10, 2, 2)]
)
def test_rounds_are_enough_for_the_playouts(playouts, batch, rounds):
    assert rounds_of(playouts, batch, 3) == rounds
    assert nodes_of(playouts, batch, 3) == 4 + 3 * batch * rounds
    assert nodes_of(playouts, batch, 3) - 1 >= playouts


def test_untried_first_then_ties_in_their_order():
    q, ties = jnp.array([0.5, 0.5, 0.1]), jnp.array([0.2, 0.3, 0.1])
    assert int(ucb1(q, jnp.array([3, 3, 0]), jnp.array(7), 1.0, ties)) == 2
    assert int(ucb1(q, jnp.array([3, 3, 3]), jnp.array(10), 1.0, ties)) == 1
    assert int(ucb1(q, jnp.array([3, 3, 3]), jnp.array(10), 1.0, ties, jnp.array([False, True, False]))) == 0
    assert mctx.Tree.UNVISITED == NOBODY
