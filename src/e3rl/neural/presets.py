"""Named settings: e3rl's own, and the paper's tables (appendix C), which never change after publication.

`e3rl` is for the lock: it tells dice, and its exploration ends by itself. `e3rl-budgets` does neither and was used
before, in all experiments by budgets; `e3rl-long` is the same for horizons of 50 and more (larger batches, since new
facts are rarer in the buffer). `e3rl-numbers` is `e3rl-control` with
a wider value, models that are finished before it is fitted, rewards in units, and rounds of practice in place of the
last explorations, because which of several fitted values is good shows in real episodes only: what an environment of
numbers gets where nobody names settings. `e3rl-numbers-quick` takes less time, for a little less return where that is
hard.

A preset of the paper's name is its table, completed by what the released code does where the table is silent, and
nothing else; `rounds.count` adds the rounds of App. C.3, which want a seed at a time. `steadied-control` is
`paper-control` with a DQN that does not swing: errors are squared, targets clipped, the models judge the weights after
every thousand updates, which costs no episode, and the learning rate starts at the table's and falls.
"""

from e3rl.models.bernoulli import Bernoulli
from e3rl.models.conv import Conv
from e3rl.models.factored import Factored
from e3rl.models.fit import Fit
from e3rl.models.mlp import Mlp
from e3rl.models.tiles import Tiles
from e3rl.neural.config import Explore, NeuralE3Config, Rounds
from e3rl.planners.exploit_dqn import OfflineDqn
from e3rl.planners.exploit_value import ImaginedValue
from e3rl.planners.graph_search import GraphSearch
from e3rl.planners.mcts import TreeSearch
from e3rl.planners.state_graph import StateGraph
from e3rl.planners.utility import Marginal, Mean, Squared
from e3rl.planners.value import ValuePlanner
from e3rl.runs.settings import changed
from e3rl.values.double_dqn import DqnFit
from e3rl.values.imagined import ValueFit


def _paper_lock(ratio: int) -> NeuralE3Config:
    """App. C.1's table; what it leaves out comes from the paper's code (exploration reward, leaf, choice, DQN)."""
    return NeuralE3Config(
        explore=Explore(ratio=ratio, uniform_transitions=100),
        model=Bernoulli(hidden=50, conditioning="input", mean_over_bits=True, reward_weight=1.0),
        fit=Fit(members=5, updates=100, batch=20, learning_rate=1e-2, prior_weight=0.0),
        utility=Mean(reward_scale=1.0, caution=0.0),
        planner=TreeSearch(playouts=200, particles=100, leaf="rollout", choice="best", common_noise=False),
        exploit=OfflineDqn(
            value=DqnFit(updates=200_000, batch=100, learning_rate=1e-4, heads=False, hidden=50)
        ),
    )


PAPER_DQN = DqnFit(
    updates=750_000, batch=64, learning_rate=3e-4, discount=0.99, target_period=5_000, heads=False
)
"""App. C.3's."""


def _paper_control(exploit: OfflineDqn) -> NeuralE3Config:
    """App. C.3's table; from the paper's code are the distance to the root and the share of endings."""
    return NeuralE3Config(
        explore=Explore(ratio=0, episodes=100, per_epoch=10),
        clock=False,
        model=Mlp(hidden=64),
        fit=Fit(
            members=8, updates=2_000, batch=8, unroll=20, learning_rate=1e-4, prior_weight=0.0, recent_share=0.5,
            ending_share=0.25,
        ),
        utility=Squared(reward_scale=0.0, caution=0.0),
        planner=GraphSearch(nodes=2_000, frontier="root"),
        exploit=exploit,
        rounds=Rounds(updates=25_000),
    )  # fmt: skip


STATIONARY = ValueFit(target_rate=0.05, discount=0.99, heads=False)
"""Values of problems without a clock."""

PRESETS: dict[str, NeuralE3Config] = {
    "e3rl": NeuralE3Config(),
    "e3rl-budgets": NeuralE3Config(
        explore=Explore(ratio=30),
        fit=Fit(prior_weight=0.23),
        utility=Marginal(),
        planner=ValuePlanner(),
        exploit=ImaginedValue(),
    ),
    "e3rl-long": NeuralE3Config(
        explore=Explore(ratio=45),
        fit=Fit(prior_weight=0.1, batch=256),
        utility=Marginal(),
        planner=ValuePlanner(value=ValueFit(batch=256)),
        exploit=ImaginedValue(value=ValueFit(updates=15_000, batch=256)),
    ),
    "e3rl-control": NeuralE3Config(
        explore=Explore(ratio=0, episodes=50, per_epoch=5, epsilon_share=0.2),
        clock=False,
        model=Mlp(),
        fit=Fit(updates=1_000, learning_rate=1e-3, prior_weight=0.0, ending_share=0.1),
        utility=Squared(reward_scale=0.0, caution=0.0),
        planner=GraphSearch(frontier="root", tried=0.9),
        exploit=ImaginedValue(
            value=ValueFit(updates=40_000, decay=True, target_rate=0.05, discount=0.99, heads=False), snapshots=40
        ),
    ),
    "e3rl-numbers": NeuralE3Config(
        explore=Explore(ratio=0, episodes=30, per_epoch=5, epsilon_share=0.2),
        clock=False,
        model=Mlp(),
        fit=Fit(
            updates=1_000, learning_rate=1e-3, prior_weight=0.0, ending_share=0.1, reward_units=True,
            finishing=10_000,
        ),
        utility=Squared(reward_scale=0.0, caution=0.0),
        planner=GraphSearch(frontier="root", tried=0.9),
        exploit=ImaginedValue(
            value=ValueFit(
                updates=40_000, batch=128, decay=True, target_rate=0.05, discount=0.99, heads=False, hidden=128
            ),
            snapshots=40,
            wait=12,
        ),
        rounds=Rounds(count=4, episodes=5, updates=0, stop_on_drop=False, leftover=True),
    ),
    "e3rl-image": NeuralE3Config(
        explore=Explore(ratio=0, episodes=50, per_epoch=10, epsilon_share=0.2),
        clock=False,
        model=Conv(),
        fit=Fit(
            members=4, updates=1_500, batch=16, unroll=10, learning_rate=1e-3, prior_weight=0.0, recent_share=0.5,
            ending_share=0.2,
        ),
        utility=Squared(reward_scale=1.0, caution=0.0),
        planner=GraphSearch(top_share=0.01, tried=0.9),
        exploit=GraphSearch(),
    ),
    "e3rl-tiles": NeuralE3Config(
        explore=Explore(ratio=0, episodes=60, per_epoch=1, update_every=8, surprise=0.1),
        clock=False,
        model=Tiles(),
        fit=Fit(
            updates=20, batch=32, prior_weight=0.0, recent_share=0.25, ending_share=0.1, reward_units=True
        ),
        utility=Marginal(reward_scale=1.0, caution=0.0),
        planner=StateGraph(nodes=600, once=True, chance=0.1),
        exploit=StateGraph(discount=0.97),
    ),
    "e3rl-categories": NeuralE3Config(
        explore=Explore(ratio=0, episodes=200, per_epoch=1, update_every=16, surprise=0.1),
        clock=False,
        model=Factored(),
        fit=Fit(updates=50, prior_weight=0.0, recent_share=0.25, ending_share=0.1, reward_units=True),
        utility=Marginal(reward_scale=1.0, caution=0.0),
        planner=StateGraph(once=True, chance=0.1),
        exploit=StateGraph(discount=0.97),
    ),
    "paper-control": _paper_control(OfflineDqn(value=PAPER_DQN)),
    "steadied-control": _paper_control(
        OfflineDqn(value=changed(PAPER_DQN, {"decay": True, "huber": 20.0, "clipped": True}), snapshots=750)
    ),
    "paper-maze": NeuralE3Config(
        explore=Explore(ratio=0, episodes=50, per_epoch=10),
        clock=False,
        model=Conv(hidden=64, reward_head="dense"),
        fit=Fit(
            members=4, updates=10_000, batch=16, unroll=10, learning_rate=1e-3, prior_weight=0.0, recent_share=0.5
        ),
        utility=Squared(reward_scale=0.0, caution=0.0),
        planner=GraphSearch(nodes=2_000),
        exploit=GraphSearch(nodes=2_000),
    ),
    "paper-lock-h5": _paper_lock(25),
    "paper-lock-h10": _paper_lock(50),
    "paper-lock-h15": _paper_lock(50),
    "paper-lock-h20": _paper_lock(75),
}  # fmt: skip
PRESETS["e3rl-numbers-quick"] = changed(
    PRESETS["e3rl-numbers"], {"exploit.value.batch": 64, "exploit.wait": 10}
)
