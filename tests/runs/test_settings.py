"""Settings: checked when made, changed by path and text, parts chosen by name, written and read again."""

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Literal

import jaxtyping
import numpy as np
import pytest

from e3rl.experiments.agents import AGENTS
from e3rl.registry import Registry
from e3rl.runs.settings import Settings, as_dict, changed, from_dict, group, part, setting, settings_of
from e3rl.types import UserError

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.fixture
def unchecked(monkeypatch):
    """As users run it: the settings' own checks, without those of the tests' type checker before them."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@dataclass(frozen=True)
class Step(Settings):
    rate: float = setting(0.5, "How far", above=0, at_most=1)
    count: int = setting(4, "How often", at_least=1)


class Engine(Settings):
    """What can be chosen."""


@dataclass(frozen=True)
class Steam(Engine):
    coal: int = setting(3, "Shovels", at_most=10)
    step: Step = group(Step(), "How it moves")

    def check(self) -> None:
        if self.coal % self.step.count == 1:
            raise UserError(f"coal leaves one over, got {self.coal}")


@dataclass(frozen=True)
class Electric(Engine):
    volts: float = setting(12.0, "Tension", at_least=-20)
    wires: Literal["one", "two"] = setting("two", "How many")


@dataclass(frozen=True)
class Bare(Engine):
    """Has nothing to set."""


ENGINES = Registry("engine", "e3rl.test-engines", {"steam": Steam, "electric": Electric, "bare": Bare})


@dataclass(frozen=True)
class Train(Settings):
    cars: int = setting(2, "Behind the engine")
    lit: bool = setting(False, "Whether lamps burn")
    name: str = setting("none", "What it is called")
    step: Step = group(Step(), "How it brakes")
    engine: Engine = part(Steam(), ENGINES, "What pulls")


ALL = ["cars", "lit", "name", "step", "step.rate", "step.count", "engine"]


def test_changes_are_text_or_values():
    text = {"cars": "3", "lit": "True", "step.rate": "1", "engine.step.count": "7", "name": "none 2"}
    values = {"cars": 3, "lit": True, "step.rate": 1.0, "engine.step.count": 7, "name": "none 2"}
    wanted = Train(cars=3, lit=True, name="none 2", step=Step(rate=1.0), engine=Steam(step=Step(count=7)))
    for changes in (text, values):
        assert changed(Train(), changes) == wanted
    assert isinstance(changed(Train(), text).step.rate, float)
    assert changed(Train(), {}) == Train()
    assert changed(Train(), {"step": Step(count=9)}).step == Step(count=9)


def test_a_part_brings_its_own_settings_in_whatever_order_they_are_given():
    wanted = Train(engine=Electric(volts=6.0))
    for order in (("engine", "engine.volts"), ("engine.volts", "engine")):
        given = {"engine": "electric", "engine.volts": "6"}
        assert changed(Train(), {name: given[name] for name in order}) == wanted
    assert changed(wanted, {"engine": "electric"}) == wanted  # naming the part that is there changes nothing
    assert changed(wanted, {"engine": "steam"}).engine == Steam()


def test_a_million_may_be_written_short():
    assert changed(Train(), {"cars": "1e6"}).cars == 1_000_000
    assert changed(Train(), {"cars": "+12"}).cars == 12
    assert changed(Train(), {"cars": str(2**60 + 1)}).cars == 2**60 + 1  # not by way of a float


@pytest.mark.parametrize(
    ("value", "kind"),
    [(np.int64(5), int), (np.float32(0.5), float), (np.bool_(True), bool), (np.str_("x"), str)],
)
def test_numbers_of_numpy_are_taken_as_pythons(value, kind):
    name = {int: "cars", float: "step.rate", bool: "lit", str: "name"}[kind]
    found = changed(Train(), {name: value})
    for field in name.split("."):
        found = getattr(found, field)
    assert type(found) is kind
    assert found == value


def test_a_whole_number_is_a_number_too():
    assert changed(Train(), {"engine": "electric", "engine.volts": 5}).engine.volts == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"carss": "1"}, r"unknown setting 'carss'; did you mean 'cars'\?$"),
        ({"coal": "1"}, r"unknown setting 'coal'; did you mean 'engine.coal'\?$"),
        ({"rate": "1"}, r"unknown setting 'rate'; did you mean 'step.rate' or 'engine.step.rate'\?$"),
        ({"coall": "1"}, r"unknown setting 'coall'; did you mean 'engine.coal'\?$"),
        ({"qqq": "1"}, "unknown setting 'qqq'$"),
        ({"step.speed": "1"}, "step has no setting 'speed'; it has rate, count$"),
        ({"engine.volts": "1"}, "engine 'steam' has no setting 'volts'; it has coal, step$"),
        ({"engine": "electric", "engine.coal": 1}, "engine 'electric' has no setting 'coal'; it has volts, wires$"),
        ({"engine": "bare", "engine.coal": 1}, "engine 'bare' has no setting 'coal'; it has none$"),
        ({"cars.wheels": "4"}, "cars is a whole number: it has no setting 'wheels'$"),
        ({"step": "3"}, "step is a group: set one of its own settings, such as step.rate$"),
        ({"engine.step": "3"}, "engine.step is a group: .*, such as engine.step.rate$"),
        ({"engine": "stem"}, r"unknown engine 'stem'; did you mean 'steam'\? known: steam, electric, bare$"),
        ({"engine": "diesel"}, "unknown engine 'diesel'; known: steam, electric, bare$"),
        ({"engine": "os:getcwd"}, "os:getcwd is no engine$"),  # and nobody calls it
        ({"engine": "e3rl.types:UserError"}, "e3rl.types:UserError is no engine$"),
        ({"engine": 3}, "engine must be one of steam, electric, bare, got 3$"),
        ({"engine": Step()}, "engine must be one of steam, electric, bare, got Step"),
        ({"step": 3}, r"step must be Step\(\.\.\.\), got 3$"),
        ({"cars": "2.5"}, "cars must be a whole number, got '2.5'$"),
        ({"cars": "many"}, "cars must be a whole number, got 'many'$"),
        ({"cars": "inf"}, "cars must be a whole number, got 'inf'$"),
        ({"cars": "1e999"}, "cars must be a whole number, got '1e999'$"),
        ({"cars": 2.0}, "cars must be a whole number, got 2.0$"),
        ({"cars": True}, "cars must be a whole number, got True$"),
        ({"cars": None}, "cars must be a whole number, got None$"),
        ({"lit": "1"}, "lit must be true or false, got '1'$"),
        ({"lit": 1}, "lit must be true or false, got 1$"),
        ({"name": 5}, "name must be a word, got 5$"),
        ({"step.rate": "fast"}, "step.rate must be a number, got 'fast'$"),
        ({"step.rate": "nan"}, "rate must be a finite number, got nan$"),
        ({"step.rate": math.inf}, "rate must be a finite number, got inf$"),
        ({"step.rate": "0"}, "rate must be above 0, got 0"),
        ({"step.rate": 1.5}, "rate must be at most 1, got 1.5$"),
        ({"step.count": "0"}, "count must be at least 1, got 0$"),
        ({"cars": "-1"}, "cars must not be negative, got -1$"),
        ({"engine": "electric", "engine.volts": -21}, "volts must be at least -20, got -21$"),
        ({"engine": "electric", "engine.wires": "three"}, "wires must be one of one, two, got 'three'$"),
        ({"engine.coal": 5}, "coal leaves one over, got 5$"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(changes, message):
    with pytest.raises(UserError, match=message) as raised:
        changed(Train(), changes)
    assert "\n" not in str(raised.value)


def test_negative_where_a_field_allows_it():
    assert changed(Train(), {"engine": "electric", "engine.volts": "-20"}).engine.volts == -20.0


def test_everything_that_can_be_set_as_the_parts_are_chosen():
    steam = ["engine.coal", "engine.step", "engine.step.rate", "engine.step.count"]
    assert list(settings_of(Train())) == [*ALL, *steam]
    assert list(settings_of(Train(engine=Electric()))) == [*ALL, "engine.volts", "engine.wires"]


def test_settings_are_written_with_the_names_of_their_parts():
    found = as_dict(Train(engine=Electric(volts=6.0)))
    assert found == {
        "cars": 2, "lit": False, "name": "none", "step": {"rate": 0.5, "count": 4},
        "engine": {"name": "electric", "volts": 6.0, "wires": "two"},
    }  # fmt: skip
    assert from_dict(Train, json.loads(json.dumps(found))) == Train(engine=Electric(volts=6.0))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda stored: stored.pop("cars"), "'cars' is missing$"),
        (lambda stored: stored.update(wheels=4), "'wheels' is no setting$"),
        (lambda stored: stored["engine"].pop("coal"), "'coal' is missing$"),
        (lambda stored: stored["engine"].update(volts=1), "'volts' is no setting$"),
        (lambda stored: stored["step"].update(name="x"), "'name' is no setting$"),
        (lambda stored: stored["engine"].update(name="diesel"), "unknown engine 'diesel'"),
        (lambda stored: stored["engine"].update(name="os:abort"), "os:abort is no engine$"),
        (lambda stored: stored["engine"].pop("name"), "unknown engine None"),
        (lambda stored: stored.update(step=3), "step must be an object, got 3$"),
        (lambda stored: stored.update(cars="2"), "cars must be a whole number, got '2'$"),
    ],
)
def test_what_is_stored_must_be_all_there_and_nothing_else(spoil, message):
    """A default may have changed since, and a part's name may mean another one."""
    stored = as_dict(Train())
    spoil(stored)
    with pytest.raises(UserError, match=message):
        from_dict(Train, stored)


@dataclass(frozen=True)
class Tram(Settings):
    cars: int = setting(2, "How many")
    bell: int = setting(5, "How loud; the first trams had none", before=0)
    step: Step = group(Step(), "How it moves")


def test_what_was_written_before_a_setting_existed_did_without_it():
    """Whatever its default is now."""
    first = {"cars": 3, "step": {"rate": 0.5, "count": 4}}
    assert from_dict(Tram, first) == Tram(cars=3, bell=0)
    assert as_dict(Tram(cars=3, bell=0)) == first  # the same settings are the same text
    assert as_dict(Tram(cars=3)) == {**first, "bell": 5}
    assert from_dict(Tram, {**first, "bell": 5}) == Tram(cars=3)
    with pytest.raises(UserError, match=r"'cars' is missing$"):
        from_dict(Tram, {"step": first["step"]})


# The settings that the package has.

PRESETS = {
    (algo, name): preset for algo, agent in AGENTS.items() for name, preset in agent.presets.items()
}  # fmt: skip


@pytest.mark.parametrize(("algo", "name"), PRESETS)
def test_every_preset_is_read_as_it_was_written(algo, name):
    preset = PRESETS[algo, name]
    found = from_dict(AGENTS[algo].settings, json.loads(json.dumps(as_dict(preset))))
    assert found == preset
    assert as_dict(found) == as_dict(preset)


def every_kind(settings, seen):
    """The classes of settings that can be reached from `settings`, whatever is chosen."""
    if settings in seen:
        return
    seen.add(settings)
    for field in dataclasses.fields(settings):
        registry = field.metadata.get("registry")
        if registry is not None:
            for name in registry:
                every_kind(registry[name], seen)
        elif isinstance(field.default, Settings):
            every_kind(type(field.default), seen)


def test_every_setting_says_what_it_means():
    kinds = set()
    for agent in AGENTS.values():
        every_kind(agent.settings, kinds)
    assert len(kinds) > 20
    for kind in kinds:
        for field in dataclasses.fields(kind):
            where = f"{kind.__name__}.{field.name}"
            assert field.metadata.get("meaning", "").strip(), where
            assert field.default is not dataclasses.MISSING, where
            assert isinstance(field.default, Settings | int | float | str), where
        kind()  # the defaults can be used together


@pytest.mark.parametrize(
    "paths", [["step..rate"], ["step.", "step.rate"], [".cars"], ["", ".cars"], ["step", "step..rate"]]
)
def test_a_path_with_a_name_missing_is_refused(paths):
    with pytest.raises(UserError, match="a name is missing"):
        changed(Train(), dict.fromkeys(paths, "1"))
