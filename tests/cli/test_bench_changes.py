"""What `e3rl bench` says became slower or faster, on rows written out by hand."""

from e3rl.cli.bench_changes import BY_SECONDS, BY_YARDSTICK, changes


def row(name, ours_s, yardstick_s=None, yardstick="theirs"):
    ratio = None if yardstick_s is None else yardstick_s / ours_s
    found = {
        "name": name,
        "ours_s": ours_s,
        "yardstick": yardstick,
        "yardstick_s": yardstick_s,
        "ratio": ratio,
    }
    return found if yardstick_s is not None else {**found, "yardstick": None}


def compared(old, new, config=None, old_config=None):
    config = {"unit": "s"} if config is None else config
    old_config = config if old_config is None else old_config
    before = {"fake": {"rows": old, "config": old_config}}
    return changes(before, {"rows": new, "config": {"fake": config}})


def test_rows_with_a_yardstick_are_judged_by_the_ratio():
    """A machine twice as slow for both sides has changed nothing."""
    assert compared([row("fake/a", 1.0, 4.0)], [row("fake/a", 2.0, 8.0)]) == (1, [], [], [])
    found = compared([row("fake/a", 1.0, 4.0)], [row("fake/a", 2.0, 4.0)])
    assert [(each["name"], each["times"]) for each in found.slower] == [("fake/a", 2.0)]
    found = compared([row("fake/a", 1.0, 4.0)], [row("fake/a", 0.5, 4.0)])
    assert [(each["name"], each["times"]) for each in found.faster] == [("fake/a", 2.0)]


def test_seconds_are_weighed_by_how_long_the_yardsticks_take():
    old = [row("fake/a", 1.0, 4.0), row("fake/b", 1.0)]
    assert compared(old, [row("fake/a", 3.0, 12.0), row("fake/b", 3.0)]) == (2, [], [], [])
    found = compared(old, [row("fake/a", 1.0, 4.0), row("fake/b", 3.0)])
    assert [each["name"] for each in found.slower] == ["fake/b"]
    found = compared(old, [row("fake/a", 3.0, 12.0), row("fake/b", 1.0)])
    assert [each["name"] for each in found.faster] == ["fake/b"]


def test_what_may_be_noise_is_not_told():
    for threshold, yardstick in ((BY_YARDSTICK, 4.0), (BY_SECONDS, None)):
        for factor in (0.99 * threshold, 1.0 / (0.99 * threshold)):
            assert not any(compared([row("fake/a", 1.0, yardstick)], [row("fake/a", factor, yardstick)])[1:])
        assert compared([row("fake/a", 1.0, yardstick)], [row("fake/a", 1.01 * threshold, yardstick)]).slower


def test_a_yardstick_that_is_missing_or_another_is_none():
    """Without it there are seconds."""
    found = compared([row("fake/a", 1.0, 4.0)], [row("fake/a", 1.5, 400.0, "others")])
    assert found == (1, [], [], [])
    assert compared([row("fake/a", 1.0, 4.0)], [row("fake/a", 2.0)]).slower


def test_new_rows_other_settings_and_what_is_no_time_are_not_compared():
    one, slow = [row("fake/a", 1.0)], [row("fake/a", 9.0)]
    assert compared([row("fake/b", 1.0)], slow) == (0, [], [], [])
    assert compared(one, slow, {"nodes": 1}, {"nodes": 2}) == (0, [], [], ["fake"])
    assert compared(one, slow, {"nodes": 1, "newer": 3}, {"nodes": 1}).slower
    assert compared(one, slow, {"columns": ["auroc"]}) == (0, [], [], [])
    assert changes({}, {"rows": slow, "config": {"fake": {}}}) == (0, [], [], [])
