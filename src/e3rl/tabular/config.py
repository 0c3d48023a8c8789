"""Tabular E³'s settings."""

from dataclasses import dataclass

from e3rl.runs.settings import Settings, group, setting

LEAST_EPISODES = 100


@dataclass(frozen=True)
class ExploreTable(Settings):
    """How long to explore, and how often to plan."""

    episodes: int = setting(
        0, "Exploration episodes at most; 0 takes `ratio` for every state discovered, at least 100"
    )
    ratio: int = setting(5, "Exploration episodes at most, for every state discovered", at_least=1)
    epsilon: float = setting(
        0.05,
        "Exploration ends once the best explorer would meet something never seen in at most this share of its "
        "episodes, and no member's own best policy is worth more than the one to be returned by more than this share "
        "of its value. 0 leaves it to the number of episodes",
        at_most=1,
    )
    update_every: int = setting(
        16, "Steps of an episode after which the plan is made anew; news make it anew at once", at_least=1
    )

    repeats: float = setting(
        0.02,
        "Share of steps that lead to states known from earlier episodes, below which a table is of no use and another "
        "agent takes over. 0 leaves it to the table's size",
        at_most=1,
        before=0.0,
    )

    def limit(self, states: int) -> int:
        """Exploration episodes at most, in a table of so many states."""
        return self.episodes or max(LEAST_EPISODES, self.ratio * states)


@dataclass(frozen=True)
class TabularE3Config(Settings):
    """Every choice of a run."""

    explore: ExploreTable = group(ExploreTable(), "How long to explore")
    members: int = setting(5, "E: samples of the posterior, which are the model set", at_least=2)
    capacity: int = setting(200_000, "States that the table holds at most", at_least=1)
    lookahead: int = setting(1_000, "Steps that a plan sees ahead at most", at_least=1)
    evaluation_episodes: int = setting(
        100,
        "Greedy episodes at the end; where their returns differ up to ten times as many, while they have fewer than "
        "40,000 steps",
        at_least=1,
    )
