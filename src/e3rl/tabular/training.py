"""One program of tabular E³: Algorithm 1 with a table, which learns at every step and plans within the episode."""

import math
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float

from e3rl.e3 import Epoch, Slots, explicit_explore_exploit
from e3rl.envs.playing.python_copies import PythonCopies
from e3rl.envs.spec import Spec
from e3rl.runs.agent import AbstractProgram
from e3rl.runs.checkpoint import load_arrays
from e3rl.runs.handover import HandOver
from e3rl.runs.record import Record
from e3rl.tabular.config import TabularE3Config
from e3rl.tabular.experience import STARTS, Experience, Prospect
from e3rl.tabular.log import Log
from e3rl.tabular.minds import (
    KNOWN,
    Doubt,
    judge_policy,
    plan_of_member,
    plan_to_exploit,
    plan_to_explore,
    smoothed,
    unknown_share,
)
from e3rl.tabular.planning import Planned
from e3rl.tabular.playing import EVALUATE, EXPLORE, LOOK, Played, Player, TablePolicy
from e3rl.tabular.posterior import Table, TableFull
from e3rl.types import Key, UserError

MOST_LOOKS = 100
"""Beginnings of episodes that are looked at before the first one at most, where they keep bringing new states."""
IMPORTANT = 0.01
"""A policy is better if it is worth this share more."""
UNKNOWN, CHALLENGER, LEADER = range(3)
"""What an episode of exploring is for."""
LEAST_PATIENCE = 5
"""Episodes without a new state or a better policy after which more of them are not expected; or a third of the episodes
before, if that is longer."""
QUIET = 50
"""Steps without news after which it is worth asking whether there is anything left to find."""
ENOUGH_STEPS = 300
"""Steps after the first episode that tell whether observations come back."""
INSTEAD = "train neural-e3 instead, which generalises over them, or raise capacity"
ROWS_PER_WAIT = 512
"""A table of so many states waits a step longer before it is planned anew."""


class TabularProgram(AbstractProgram):
    """Trains one seed, in one copy of its environment, which is stepped in Python."""

    def __init__(self, env: PythonCopies, spec: Spec, config: TabularE3Config, seed: int):
        self.env, self.spec, self.config, self.seed = env, spec, config, seed
        self.clock_limit = spec.horizon
        self.steps = min(spec.horizon, config.lookahead)
        self.every = min(config.explore.update_every, self.steps)
        self.player = Player(env, spec, seed)

    def learn(self, record: Record, resume: bool = False) -> tuple[TablePolicy, list[dict[str, Any]]]:
        resumed = record.begin(resume, None)
        config = self.config
        table = Table(self.spec.actions, config.members, self.seed, config.capacity)
        log = Log(self.spec.encoding)
        experience, first = Experience(), 0
        if resumed:
            arrays = dict(resumed.state)
            experience, first = Experience.restored(arrays), resumed.abouts[0]["epoch"]
            log.restore(arrays)
            table.restore(arrays)
            table.episode = max(first - 1, 0)
            if why := resumed.abouts[0].get("handed_over"):
                raise HandOver(why, INSTEAD, log.steps())
        record.say(
            "compiling", first, config.explore.limit(table.states), what=f"the planner for {self.spec.name}"
        )

        def plan(table: Table, experience: Experience, before: Any, t: int) -> tuple[Prospect, Prospect]:
            """Line 5: what to look for next. The plan itself is made within the episode, over and over."""
            prospect = self._prospect(table, experience, t)
            return prospect, prospect

        def stop(t: int, prospect: Prospect) -> bool:
            return t >= config.explore.limit(table.states) or self._settled(prospect.doubt)

        def collect(prospect: Prospect, experience: Experience, t: int) -> tuple[Experience, Played]:
            return self._explore(record, table, log, prospect, t)

        def after(epoch: Epoch) -> None:
            played: Played = epoch.collected
            self._record(record, "explore", played, epoch.v_explore.value)
            limit = config.explore.limit(table.states)
            at_most = config.explore.epsilon > 0
            record.say("explore", epoch.t + 1, limit, played.total, played.disagreement, at_most=at_most)
            if why := self._pointless(log, epoch.replay):
                self._hand_over(record, epoch.t + 1, table, log, epoch.replay, why)
            self._hold(record, epoch.t + 1, table, log, epoch.replay)

        slots = Slots(
            plan=plan,
            stop=stop,
            collect=collect,
            update_model_set=lambda table, experience, t: (table, None),  # counts are updated at every step
            exploit=lambda table, experience, prospect: self._exploit(record, table, prospect),
        )
        with record:
            if not experience.starts:
                experience = self._look_at_starts(table)
            return explicit_explore_exploit(table, experience, slots, None, first, after)

    def _look_at_starts(self, table: Table) -> Experience:
        """Where episodes begin: some resets, no step; more of them while they still bring something new."""
        experience = Experience()
        try:
            for i in range(MOST_LOOKS):
                experience, _, _ = self._begin(table, experience, LOOK, i)
                if i >= STARTS - 1 and (not any(experience.fresh[-STARTS + 1 :]) or table.crowded):
                    break
        except TableFull as error:
            raise UserError(f"{error}: {INSTEAD}") from error
        return experience

    def _begin(
        self, table: Table, experience: Experience, use: int, number: int
    ) -> tuple[Experience, int, Float[np.ndarray, "*obs"]]:
        obs = self.player.begin(use, number)
        before = table.states
        row = table.find(obs)
        return experience.began(row, table.states > before), row, obs

    def _prospect(self, table: Table, experience: Experience, t: int) -> Prospect:
        """v_explore and line 6's numbers, and whether the last episode brought anything of importance."""
        starts = np.array(sorted(set(experience.starts)))
        value = float(np.asarray(plan_to_explore(table, self.steps, 1).value)[starts].mean())
        unknown, untried = (
            experience.new_starts
            + (1.0 - experience.new_starts) * unknown_share(table, starts.tolist(), self.steps, only)
            for only in (False, True)
        )
        outcomes = smoothed(table)
        policy = judge_policy(table, outcomes, starts, self.steps, t)
        better = policy.worth > experience.worth + IMPORTANT * abs(policy.worth)
        if better or table.discovered_in(t - 1):
            experience = experience._replace(last_news=t, worth=max(policy.worth, experience.worth))
        patience = max(LEAST_PATIENCE, experience.last_news // 3)
        sure = policy.paid >= 1.0 - self.config.explore.epsilon and table.missing_mass()[1] <= KNOWN
        stale = bool(sure) and t - experience.last_news >= patience
        doubt = Doubt(unknown, policy.regret, untried, stale)
        return Prospect(value, doubt, outcomes, policy.challenger, experience)

    def _settled(self, doubt: Doubt) -> bool:
        return self.config.explore.epsilon > 0 and doubt.settled(self.config.explore.epsilon)

    def _kind(self, doubt: Doubt, t: int) -> int:
        """What an episode is for: the unknown; and while members disagree about what is best, three times in four,
        either the one most at odds with the policy to be returned, or that policy itself, to test what it relies on."""
        epsilon = self.config.explore.epsilon
        if doubt.regret <= epsilon or (t % 4 == 0 and doubt.untried > epsilon):
            return UNKNOWN
        return CHALLENGER if t % 2 == 1 else LEADER

    def _planned(self, table: Table, kind: int, prospect: Prospect, left: int, t: int) -> Planned:
        if kind == CHALLENGER:
            return plan_of_member(table, prospect.outcomes, prospect.challenger, left, t)
        if kind == LEADER:
            return plan_to_exploit(table, prospect.outcomes, left)
        return plan_to_explore(table, left, self.every)

    def _explore(
        self, record: Record, table: Table, log: Log, prospect: Prospect, t: int
    ) -> tuple[Experience, Played]:
        """Line 7 with line 8 inside: one episode, planned anew every few steps and whenever it brings news."""
        every, wait = self.every, 1 + table.states // ROWS_PER_WAIT
        doubt = prospect.doubt
        table.episode = t
        try:
            experience, state, obs = self._begin(table, prospect.experience, EXPLORE, t)
        except TableFull as error:
            if log.size == 0:
                raise UserError(f"{error}: {INSTEAD}") from error
            self._hand_over(record, t, table, log, prospect.experience, str(error))
        believed = len(prospect.outcomes.successor)
        kind = UNKNOWN if table.states > believed else self._kind(doubt, t)  # or it begins where it never did
        total, along, step, since, quiet, known = 0.0, 0.0, 0, max(every, wait), 0, 0
        block: np.ndarray = np.zeros((1, 0), int)
        rewards: list[float] = []
        while step < self.spec.horizon:
            if kind != UNKNOWN and state >= known > 0:
                kind, since = UNKNOWN, wait  # nobody has a plan for what was just discovered
            surprised = kind == UNKNOWN and quiet == 0 and since >= wait
            due = since >= max(every, wait) and (
                kind == UNKNOWN or step == 0
            )  # the others go through with their policy
            if due or surprised or state >= block.shape[1]:
                left, known = min(self.spec.horizon - step, self.steps), table.states
                block, since = np.asarray(self._planned(table, kind, prospect, left, t).policy), 0
            action = int(block[min(since, len(block) - 1), state])
            along += float(table.disagreement[state, action])
            answer = self.env.step(np.array([action]))
            if answer.failures:
                if step:
                    self._record(record, "explore", Played(total, step, along), math.nan)
                self._hold(record, t, table, log, experience)
                self.player.asked(answer, step + 1)
            reward, terminated = float(answer.reward[0]), bool(answer.terminated[0])
            log.add(obs, action, step, reward, answer.obs[0], terminated)
            rewards.append(reward)
            obs, total, step, since = answer.obs[0], total + reward, step + 1, since + 1
            # Where nothing has ended before the time limit, what ends with it was ended by a clock.
            terminated = terminated and (step < self.spec.horizon or bool(table.ends))
            try:
                state, news = table.observe(state, action, reward, obs, terminated)
            except TableFull as error:
                self._record(record, "explore", Played(total, step, along), math.nan)
                self._hand_over(record, t + 1, table, log, experience, str(error))
            if t > 0 and not terminated:
                again = experience.again + int(table.since[state] < t)
                experience = experience._replace(steps=experience.steps + 1, again=again)
            quiet = 0 if news else quiet + 1
            if terminated or answer.truncated[0]:
                break
            if (
                quiet
                and quiet % max(QUIET, wait) == 0
                and self._settled(self._prospect(table, experience, t + 1).doubt)
            ):
                break  # the episode is given up: there is nothing left to find in it
        table.ended(rewards)
        return experience, Played(total, step, along)

    def _hold(
        self, record: Record, t: int, table: Table, log: Log, experience: Experience, **about: Any
    ) -> None:
        if record.folders:
            arrays = {**table.arrays(), **log.arrays(), **experience.arrays()}
            record.hold(t, {name: array[None] for name, array in arrays.items()}, [about])

    def _pointless(self, log: Log, experience: Experience) -> str:
        """Why a table is of no use here, if it is."""
        if log.full:
            return "more observations than fit into memory"
        share = experience.again / max(experience.steps, 1)
        if experience.steps >= ENOUGH_STEPS and share < self.config.explore.repeats:
            return (
                f"only {share:.1%} of {experience.steps:,} steps led to observations seen in earlier episodes"
            )
        return ""

    def _hand_over(
        self, record: Record, t: int, table: Table, log: Log, experience: Experience, why: str
    ) -> NoReturn:
        """Leave the rest to another agent, with all that was seen."""
        self._hold(record, t, table, log, experience, handed_over=why)
        raise HandOver(why, INSTEAD, log.steps())

    def _record(self, record: Record, phase: str, played: Played, v_explore: float) -> None:
        record.read_clock()
        steps = int(record.env_steps[0]) + played.length
        record.add(
            0,
            phase,
            played.total,
            played.length,
            steps,
            disagreement=played.disagreement,
            v_explore=v_explore,
        )

    def _exploit(
        self, record: Record, table: Table, prospect: Prospect
    ) -> tuple[TablePolicy, list[dict[str, Any]]]:
        """Lines 10 to 12: the best policy of the posterior's mean, then the greedy evaluation."""
        record.save()
        explored = int(record.episodes[0])
        record.say("training to exploit", explored, explored)
        actions = np.asarray(plan_to_exploit(table, prospect.outcomes, self.steps).policy)[
            :, : table.states
        ].astype(np.int16)
        policy = TablePolicy(table.keys[: table.states].copy(), actions)
        explored_steps = int(record.env_steps[0])
        played = self.player.judge(policy, self.config.evaluation_episodes)
        for each in played:
            self._record(record, "exploit", each, prospect.value)
        returns = np.array([each.total for each in played], np.float32)
        done = int(record.episodes[0])
        record.say("exploit", done, done, float(returns.mean()), math.nan)
        summary = record.summary(
            0,
            returns,
            self.spec.optimal_return,
            explore_episodes=explored,
            explore_steps=explored_steps,
            states=table.states,
            ended=self._how_it_ended(prospect.doubt, explored),
        )
        policies = TablePolicy(*(array[None] for array in policy))
        record.finish(policies, [summary])
        return policies, [summary]

    def _how_it_ended(self, doubt: Doubt, episodes: int) -> str:
        if self._settled(doubt):
            return f"by itself: {doubt}"
        return f"after {episodes} episodes, the most that it was given: {doubt}"

    def evaluate(self, policies: TablePolicy, episodes: int) -> Float[np.ndarray, "lanes n"]:
        policy = TablePolicy(*(np.asarray(array)[0] for array in policies))
        return np.array([[self.player.greedy(policy, EVALUATE, i).total for i in range(episodes)]])

    def act(self, policy: TablePolicy, obs: Any, time: int, key: Key) -> int:
        return self.player.choose(policy, self.spec.encoding.encode(obs), time, 0)

    def load_policy(self, path: Path) -> TablePolicy:
        arrays, _ = load_arrays(path)
        try:
            return TablePolicy(*(arrays[f".{name}"] for name in TablePolicy._fields))
        except KeyError as error:
            raise UserError(f"{path} belongs to another kind of run: {error} is missing") from error

    def blank_policy(self) -> Any:
        raise UserError("how large a table is shows only when it is read")

    def close(self) -> None:
        self.env.close()
