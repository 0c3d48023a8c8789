"""Neural-E³'s settings: e3rl's own defaults, and the paper's tables by name."""

from dataclasses import dataclass
from typing import Literal

from e3rl.exploit.dqn import DqnSettings
from e3rl.models.bernoulli import Conditioning
from e3rl.models.conv import RewardHead
from e3rl.models.fit import FitSettings
from e3rl.models.qnetwork import QSettings
from e3rl.neural.families import Family
from e3rl.neural.settings import check
from e3rl.planners.graph_search import Frontier, GraphSettings
from e3rl.planners.mcts import Choice, Leaf, MctsSettings
from e3rl.planners.utility import Distance
from e3rl.planners.value import ValueSettings
from e3rl.types import UserError


@dataclass(frozen=True)
class NeuralE3Config:
    """Every choice of a run. Where the paper has a symbol or a table for it, the field says so."""

    explore_ratio: int = 30
    """Exploration episodes per time step of the horizon (App. C.1: "Number of Exploration Epochs", 25H to 75H)."""
    explore_episodes: int = 0
    """Exploration episodes outright; 0 takes `explore_ratio` times the horizon."""
    episodes_per_epoch: int = 1
    """n of Algorithm 1 (App. C.1: "Exploration Episodes per Epoch")."""
    epsilon: float = 0.0
    """ε of Algorithm 1, line 6: exploration also ends once v_explore ≤ ε/|A|. 0 leaves it to the number of epochs."""
    uniform_transitions: int = 0
    """Actions are uniform until the replay buffer holds this many transitions."""

    family: Family = "bernoulli"
    """Which dynamics models (section 4.1); `neural/families.py` says what each is for."""
    clock: bool = True
    """Values, and Bernoulli models, see the time step, as problems with a short fixed horizon need; otherwise they are
    stationary and an episode cut by its time limit has not ended."""
    ensemble_size: int = 5
    """E of section 4.1 (App. C.1: "Ensemble Size")."""
    hidden: int = 64
    """Hidden layer size of dynamics and value networks (App. C.1)."""
    conditioning: Conditioning = "gate"
    """How dynamics take action and time step: one-hot "input" as in the paper's code, or "gate" as in App. C.3."""
    mean_over_bits: bool = False
    """Average the observation's log-likelihood over its bits, as the paper's code does, instead of summing."""
    prior_weight: float = 0.23
    """Pull of each member towards its own initial weights, per observation entry; 0 is maximum likelihood."""
    reward_head: RewardHead = "pooled"
    """Convolutional dynamics only: reward and ending from a fully-connected layer over the image as in App. C.2
    ("dense"), or from a maximum over its places ("pooled"), which holds wherever in the image something happens."""
    snap: bool = False
    """Graph search only: plans to exploit take predicted states to be of zeros and ones."""
    model_updates: int = 200
    """N_update of section 4.1 (App. C.1: "Model Updates per Epoch")."""
    model_batch: int = 64
    """Transitions (or segments) per member and update. The paper's minibatch of 100 is split over its 5 members."""
    unroll: int = 1
    """K of App. B.1: steps that a model is unrolled on its own predictions while fitted."""
    model_learning_rate: float = 2e-3
    gradient_clip: float = 10.0
    recent_share: float = 0.0
    """Chance that a training example comes from the last epoch (App. B.1: ½ for deterministic environments)."""

    ending_share: float = 0.0
    """Chance that a training example is one (or a segment contains one) on which an episode terminated. These are rare
    and decide everything where the reward is at the end."""

    planner: Literal["value", "graph", "mcts", "uniform"] = "value"
    """Who explores: the exploration value, graph search (App. B.2.1) or tree search (App. B.2.2) over the models, or
    nobody (UE², section 5.2)."""
    distance: Distance = "marginal"
    """δ of section 2 between two predicted distributions."""
    reward_scale: float = 0.4
    """Weight of a difference in predicted reward within δ."""

    value_updates: int = 300
    """Fitted-Q steps per epoch on imagined transitions."""
    value_batch: int = 64
    value_learning_rate: float = 1e-3
    value_target_rate: float = 0.01
    """Polyak step of the target network towards the online one, after every update."""
    value_discount: float = 1.0
    value_heads: bool = True
    """A last layer of its own for every time step."""

    nodes: int = 2_000
    """N_max of App. B.2.1."""
    frontier: Frontier = "nearest"
    """Graph search expands the node farthest from its nearest node (App. B.2.1) or, as in the paper's code for control,
    from the root."""
    exit_utility: float = 0.0
    """Graph search also ends once a node's utility per step exceeds this, as in the paper's code; 0 searches on."""
    top_share: float = 0.0
    """Exploring, graph search returns a random one of this share of its nodes, the best, as in the paper's code; 0 the
    best."""

    playouts: int = 200
    """App. C.1: "MCTS playouts"."""
    particles: int = 100
    """K of App. B.2.2 (App. C.1: "MCTS samples")."""
    ucb: float = 1.0
    """UCB constant."""
    leaf: Leaf = "value"
    choice: Choice = "best"
    common_noise: bool = True
    from_samples: bool = True

    exploit: Literal["value", "dqn", "graph", "mcts"] = "value"
    """How to exploit: value of the predicted reward, offline double DQN (section 4.3), or search."""
    exploit_updates: int = 15_000
    """Fitted-Q steps, or DQN updates, of the exploit phase."""
    exploit_decay: bool = False
    """The exploit phase's learning rate falls to a tenth over its updates."""
    snapshots: int = 1
    """Of so many values on the way through the exploit phase's updates, the one is kept whose greedy policy collects
    most in imagination; 1 takes the last."""
    huber: float = 1.0
    """Errors of the exploit phase's values beyond this count linearly. Where values are large, endings are rare and a
    small threshold hardly lets them count."""
    caution: float = 0.05
    """Exploit value only: disagreement times this is taken off the predicted reward."""
    exploit_rounds: int = 0
    """Rounds of more episodes and training while exploiting, reverted to the best on the first drop (App. C.3)."""
    round_episodes: int = 20
    round_updates: int = 2_000
    dqn_batch: int = 100
    dqn_learning_rate: float = 1e-3
    dqn_discount: float = 0.99
    dqn_target_period: int = 1_000
    dqn_ending_share: float = 0.0
    """Chance that a row of a DQN batch is one on which an episode terminated; 0 draws uniformly."""
    dqn_clipped: bool = False
    """Bootstrap a DQN by the lesser of its online and target network's values of the action chosen."""
    dqn_heads: bool = True
    evaluation_episodes: int = 100
    """Greedy episodes at the end."""

    def __post_init__(self) -> None:
        check(
            self,
            positive=(
                "ensemble_size", "hidden", "episodes_per_epoch", "model_updates", "model_batch", "playouts",
                "particles", "value_updates", "value_batch", "exploit_updates", "snapshots", "unroll", "nodes",
                "round_episodes", "round_updates", "dqn_batch", "dqn_target_period", "evaluation_episodes",
            ),
            above_zero=(
                "model_learning_rate", "value_learning_rate", "dqn_learning_rate", "gradient_clip",
                "value_target_rate", "huber",
            ),
            at_most_one=(
                "recent_share", "ending_share", "dqn_ending_share", "top_share", "value_target_rate", "value_discount",
                "dqn_discount",
            ),
        )  # fmt: skip
        if self.nodes < 2:
            raise UserError(f"nodes must be at least 2, got {self.nodes}")
        if self.exploit in ("value", "dqn") and self.exploit_updates % self.snapshots:
            raise UserError(
                f"snapshots must divide exploit_updates, {self.exploit_updates}, got {self.snapshots}"
            )
        if self.family not in ("bernoulli", "factored") and self.distance in ("mean", "hellinger"):
            raise UserError(
                f"distance {self.distance!r} is between probabilities: use 'squared' with {self.family}"
            )
        if self.epsilon > 0 and self.planner == "uniform":
            raise UserError("epsilon needs a planner that estimates v_explore: planner 'uniform' has none")
        if self.family != "bernoulli" and self.mean_over_bits:
            raise UserError("mean_over_bits belongs to the family bernoulli")
        if self.explore_ratio == 0 and self.explore_episodes == 0:
            raise UserError(
                "explore_ratio and explore_episodes are both 0: there would be nothing to learn from"
            )

    def exploration_episodes(self, horizon: int) -> int:
        return self.explore_episodes or self.explore_ratio * horizon

    def fit(self, entries: int) -> FitSettings:
        weight = self.prior_weight * (1 if self.mean_over_bits else entries)
        return FitSettings(
            self.model_updates, self.model_batch, self.model_learning_rate, self.gradient_clip, weight,
            self.recent_share, self.unroll, self.ending_share,
        )  # fmt: skip

    def explore_value(self) -> ValueSettings:
        q = QSettings(self.value_learning_rate, self.gradient_clip, self.value_target_rate, 0)
        return self._value(self.value_updates, q)

    def exploit_value(self, updates: int) -> ValueSettings:
        q = QSettings(
            self.value_learning_rate,
            self.gradient_clip,
            self.value_target_rate,
            0,
            self.huber,
            self._exploit_decay(),
        )
        return self._value(updates, q)

    def _value(self, updates: int, q: QSettings) -> ValueSettings:
        return ValueSettings(
            updates, self.value_batch, self.value_discount, self.distance, self.reward_scale, self.caution, q
        )

    def dqn(self, updates: int) -> DqnSettings:
        q = QSettings(
            self.dqn_learning_rate,
            self.gradient_clip,
            0.0,
            self.dqn_target_period,
            self.huber,
            self._exploit_decay(),
        )
        return DqnSettings(
            updates, self.dqn_batch, self.dqn_discount, self.dqn_ending_share, self.dqn_clipped, q
        )

    def _exploit_decay(self) -> int:
        return self.exploit_updates if self.exploit_decay else 0

    def graph(self, actions: int) -> GraphSettings:
        return GraphSettings(
            self.nodes,
            actions,
            self.reward_scale,
            self.exit_utility,
            self.top_share,
            self.frontier,
            self.snap,
        )

    def mcts(self, horizon: int, actions: int, leaf: Leaf | None = None) -> MctsSettings:
        return MctsSettings(
            self.playouts, self.particles, self.ucb, leaf or self.leaf, self.choice, self.common_noise,
            self.from_samples, self.distance, self.reward_scale, horizon, actions, self.family == "bernoulli",
        )  # fmt: skip


def _paper_lock(ratio: int) -> NeuralE3Config:
    """App. C.1's table; what it leaves out comes from the paper's code (exploration reward, leaf, choice, DQN)."""
    return NeuralE3Config(
        explore_ratio=ratio,
        uniform_transitions=100,
        ensemble_size=5,
        hidden=50,
        conditioning="input",
        mean_over_bits=True,
        prior_weight=0.0,
        model_updates=100,
        model_batch=20,
        model_learning_rate=1e-2,
        planner="mcts",
        distance="mean",
        reward_scale=1.0,
        playouts=200,
        particles=100,
        leaf="rollout",
        choice="best",
        common_noise=False,
        exploit="dqn",
        exploit_updates=200_000,
        dqn_learning_rate=1e-4,
        dqn_heads=False,
    )


# fmt: off
CONFIGS: dict[str, NeuralE3Config] = {
    "e3rl": NeuralE3Config(),
    "e3rl-long": NeuralE3Config(explore_ratio=45, prior_weight=0.1, model_batch=256, value_batch=256),
    "e3rl-control": NeuralE3Config(
        explore_ratio=0, explore_episodes=50, episodes_per_epoch=5, family="mlp", clock=False, prior_weight=0.0,
        model_updates=1_000, model_learning_rate=1e-3, ending_share=0.1, planner="graph", frontier="root",
        distance="squared", reward_scale=0.0, value_target_rate=0.05, value_discount=0.99, value_heads=False,
        exploit="value", exploit_updates=40_000, exploit_decay=True, snapshots=40, caution=0.0, dqn_heads=False,
        dqn_batch=64, dqn_ending_share=0.1,
    ),
    "e3rl-image": NeuralE3Config(
        explore_ratio=0, explore_episodes=50, episodes_per_epoch=10, family="conv", clock=False, ensemble_size=4,
        prior_weight=0.0, model_updates=1_500, model_batch=16, model_learning_rate=1e-3, unroll=10,
        recent_share=0.5, ending_share=0.2, planner="graph", distance="squared", reward_scale=1.0, top_share=0.01,
        value_discount=0.99, value_heads=False, exploit="graph", caution=0.0, dqn_heads=False,
        dqn_ending_share=0.2,
    ),
    "paper-control": NeuralE3Config(
        explore_ratio=0, explore_episodes=100, episodes_per_epoch=10, family="mlp", clock=False, ensemble_size=8,
        hidden=64, prior_weight=0.0, model_updates=2_000, model_batch=8, model_learning_rate=1e-4, unroll=20,
        recent_share=0.5, ending_share=0.25, planner="graph", frontier="root", distance="squared",
        reward_scale=0.0, nodes=2_000, exploit="dqn", exploit_updates=750_000, value_heads=False, dqn_heads=False,
        snapshots=750, huber=20.0, dqn_batch=64, dqn_learning_rate=3e-4, dqn_discount=0.99,
        dqn_target_period=5_000, dqn_clipped=True, exploit_decay=True, round_updates=25_000,
    ),
    "paper-maze": NeuralE3Config(
        explore_ratio=0, explore_episodes=50, episodes_per_epoch=10, family="conv", clock=False, ensemble_size=4,
        hidden=64, prior_weight=0.0, reward_head="dense", model_updates=10_000, model_batch=16,
        model_learning_rate=1e-3, unroll=10, recent_share=0.5, planner="graph", distance="squared",
        reward_scale=0.0, nodes=2_000, exploit="graph", value_heads=False, dqn_heads=False,
    ),
    "paper-lock-h5": _paper_lock(25),
    "paper-lock-h10": _paper_lock(50),
    "paper-lock-h15": _paper_lock(50),
    "paper-lock-h20": _paper_lock(75),
}
# fmt: on
"""Named settings: e3rl's own, its variant for horizons of 50 and more (larger batches, since new facts are rarer in the
buffer, and a weaker prior per bit), and the paper's, which never change after publication.

The paper's control table leaves open how the DQN's loss weighs large errors, what it bootstraps by, and how its best
weights are told from others once training goes on. Here errors are squared, targets clipped, and the models judge the
weights after every thousand updates, which costs no episode; `exploit_rounds` adds the paper's own rounds. The learning
rate starts at the table's and falls."""


def named(name: str) -> NeuralE3Config:
    if name not in CONFIGS:
        raise UserError(f"unknown config {name!r}; known: auto, {', '.join(CONFIGS)}")
    return CONFIGS[name]
