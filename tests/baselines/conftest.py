"""Training in small calls, several to a run: what is asked between two of them is asked of short runs too."""

import pytest

from e3rl.baselines import loop_jax, loop_python


@pytest.fixture(scope="module", autouse=True)
def small_calls():
    with pytest.MonkeyPatch.context() as patch:
        for loop in (loop_jax, loop_python):
            patch.setattr(loop, "STEPS_PER_CALL", 24)
        yield
