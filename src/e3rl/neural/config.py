"""Neural-E³'s settings, in groups: what each part can be set to stands with the part."""

from dataclasses import dataclass

from e3rl.models import FAMILIES
from e3rl.models.base import AbstractFamily
from e3rl.models.bernoulli import Bernoulli
from e3rl.models.fit import Fit
from e3rl.planners import EXPLOITERS, PLANNERS, UTILITIES
from e3rl.planners.base import AbstractPlanner
from e3rl.planners.exploit_value import ImaginedValue
from e3rl.planners.utility import AbstractUtility, Squared
from e3rl.planners.value import ValuePlanner
from e3rl.runs.settings import Settings, changed, group, part, setting, settings_of
from e3rl.types import UserError
from e3rl.values.imagined import ValueFit


@dataclass(frozen=True)
class Explore(Settings):
    """How long to explore (Algorithm 1, lines 4 to 8)."""

    ratio: int = setting(
        30,
        "Exploration episodes at most, per time step of the horizon "
        '(App. C.1: "Number of Exploration Epochs", 25H to 75H)',
    )
    episodes: int = setting(0, "Exploration episodes at most, outright; 0 takes `ratio` times the horizon")
    per_epoch: int = setting(
        1,
        'n of Algorithm 1, episodes between model updates (App. C.1: "Exploration Episodes per Epoch")',
        at_least=1,
    )
    epsilon: float = setting(
        0.0,
        "ε of Algorithm 1, in units of return: exploration ends by itself once no more than this may still be missed, "
        "by an estimate that is a heuristic for networks. 0 leaves it to `epsilon_share`",
    )
    epsilon_share: float = setting(
        0.0,
        "The same as a share of the range of returns seen so far, where the planner's estimate is calibrated "
        "(`planner.tried`). 0 leaves it to the number of episodes",
        at_most=1,
        before=0.0,
    )
    update_every: int = setting(
        0,
        "Steps of an episode after which models are updated and plans made anew, before it has ended; 0 learns between "
        "episodes only, as Algorithm 1 has it. Then an epoch is one episode",
        before=0,
    )
    surprise: float = setting(
        0.0,
        "Learning inside an episode waits for a step whose loss, in the mean over members, is above this: what was "
        "foreseen teaches little. 0 waits for nothing",
        before=0.0,
    )
    uniform_transitions: int = setting(
        0, "Actions are uniform until the replay buffer holds this many transitions (100 in the paper's code)"
    )

    def check(self) -> None:
        if self.ratio == 0 and self.episodes == 0:
            raise UserError("ratio and episodes of explore are both 0: there would be nothing to learn from")
        if self.update_every > 0 and self.per_epoch > 1:
            raise UserError("learning inside episodes (explore.update_every) takes explore.per_epoch=1")

    def total(self, horizon: int) -> int:
        """Exploration episodes of a run."""
        return self.episodes or self.ratio * horizon

    def epochs(self, horizon: int) -> int:
        return -(-self.total(horizon) // self.per_epoch)


@dataclass(frozen=True)
class Rounds(Settings):
    """Practice: rounds of greedy episodes that are learned from, whose best policy is kept (App. C.3)."""

    count: int = setting(0, "Rounds at most, each of another policy; 0 for none")
    episodes: int = setting(20, "Greedy episodes per round (20 in the paper's code)", at_least=1)
    updates: int = setting(
        2_000,
        "Updates of the exploit value between rounds (25,000 in the paper's code); 0 fits it anew, as at first",
        in_turn=True,
    )
    stop_on_drop: bool = setting(
        True,
        "The first drop in mean return ends the rounds, as in App. C.3; otherwise all are played",
        before=True,
    )

    leftover: bool = setting(
        False,
        "As many more rounds as fit into the episodes that exploration did not need when it ended by itself",
        before=False,
    )

    @property
    def end_early(self) -> bool:
        """Whether how many there are depends on what a seed sees."""
        return self.count > 0 and self.stop_on_drop

    @property
    def total(self) -> int:
        """Episodes of all rounds."""
        return self.count * self.episodes


@dataclass(frozen=True)
class NeuralE3Config(Settings):
    """Every choice of a run. Where the paper has a symbol or a table for it, the field says so."""

    explore: Explore = group(Explore(epsilon_share=0.2), "How long to explore")
    clock: bool = setting(
        True,
        "Values, and Bernoulli models, see the time step, as problems with a short fixed horizon need; otherwise they "
        "are stationary and an episode cut by its time limit has not ended",
    )
    model: AbstractFamily = part(Bernoulli(), FAMILIES, "Which dynamics models (section 4.1)")
    fit: Fit = group(
        Fit(prior_weight=0.1, smoothing=0.5, dice=True),
        "The ensemble and how it is fitted (section 4.1, App. B.1)",
    )
    utility: AbstractUtility = part(Squared(), UTILITIES, "What a step is worth: δ of section 2")
    planner: AbstractPlanner = part(
        ValuePlanner(value=ValueFit(levels=20, joint=True), tried=0.9),
        PLANNERS,
        "Who explores (section 4.2)",
    )
    exploit: AbstractPlanner = part(
        ImaginedValue(value=ValueFit(updates=15_000, levels=20, joint=True)),
        EXPLOITERS,
        "Who exploits (section 4.3)",
    )
    rounds: Rounds = group(Rounds(), "More training while exploiting (App. C.3)")
    evaluation_episodes: int = setting(100, "Greedy episodes at the end", at_least=1)

    def check(self) -> None:
        if self.utility.of_probabilities and not self.model.of_probabilities:
            utility, family = UTILITIES.name_of(type(self.utility)), FAMILIES.name_of(type(self.model))
            raise UserError(f"utility {utility!r} is between probabilities: use 'squared' with {family}")
        if self.explore.epsilon > 0 and not self.planner.calibrated:
            name, can = PLANNERS.name_of(type(self.planner)), "tried" in settings_of(self.planner)
            can = can and changed(self.planner, {"tried": 0.9}).calibrated
            raise UserError(
                f"epsilon needs a planner whose estimate falls to zero when nothing is left to find: planner {name!r} "
                f"{'does with planner.tried=0.9' if can else 'has none, value and graph have'}"
            )
        if self.explore.epsilon > 0 and not self.model.calibrated:
            family = FAMILIES.name_of(type(self.model))
            raise UserError(
                f"epsilon needs models whose disagreement tells what was tried: that of {family!r} hardly does"
            )

    @property
    def calibrated(self) -> bool:
        """Whether what is left to find can be told, so that exploration can end by itself."""
        return self.planner.calibrated and self.model.calibrated

    @property
    def tells_dice(self) -> bool:
        """Whether dice are told: where the family's loss is by entry, and by single steps of episodes that are over."""
        stepwise = self.explore.update_every == 0 and self.fit.unroll == 1
        return self.fit.dice and self.model.tells_dice and stepwise
