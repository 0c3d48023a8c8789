"""What is said about a run: a mapping, as summary.json has it, that prints as one line."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class Summary(dict[str, Any]):
    """A run's summary. Its entries are attributes too (`summary.exploit_return_mean`), and it prints as one line."""

    def __init__(self, entries: Mapping[str, Any], explores: bool):
        super().__init__(entries)
        self._explores = explores

    @property
    def finished(self) -> bool:
        """False for a run that a callback stopped: what there is of it has no greedy episodes."""
        return "exploit_return_mean" in self

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a summary has no {name!r}; it has {', '.join(self)}") from None

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return verdict(self, self._explores) if self.finished else stopped_line(self)

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return Summary, (dict(self), self._explores)


def verdict(summary: Mapping[str, Any], explores: bool) -> str:
    """One line about how well a run exploits, after episodes that were meant to explore or to learn."""
    mean, interval = summary["exploit_return_mean"], summary["exploit_return_ci"]
    text = f"seed {summary['seed']}: return {mean:.3f}{interval_text(interval)}"
    optimum = summary.get("optimal_return")
    if optimum:
        text += f", {mean / optimum:.0%} of the optimum {optimum:.3f}"
    kind = "exploration" if explores else "training"
    episodes = summary.get("explore_episodes", summary.get("total_episodes"))
    practice = summary.get("practice_episodes")
    if episodes is not None:
        text += f", after {episodes} {kind}{f' and {practice} practice' if practice else ''} episodes"
    ended = summary.get("ended")
    return f"{text}, {summary['wall_seconds']:.0f} s" + (f"; exploration ended {ended}" if ended else "")


def stopped_line(summary: Mapping[str, Any]) -> str:
    """One line about a run that a callback stopped."""
    text = f"seed {summary['seed']}: stopped after {summary['total_episodes']} episodes"
    text += f", {summary['wall_seconds']:.0f} s"
    where = summary.get("saved_in")
    end = f"saved in {where}, resume=True goes on" if where else "nothing is saved without `out`"
    return f"{text}; {end}"


def interval_text(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f" (95% interval {bounds[0]:.3f} to {bounds[1]:.3f})"


def duration(seconds: float) -> str:
    """A length of time as people say it: 40 s, 3 min, 1 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(round(minutes, -1), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
