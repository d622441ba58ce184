"""Settings for all tests: where compiled kernels are cached, and how Hypothesis searches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The next run reuses the kernels that one run compiled. The user's own cache is left alone.
os.environ.setdefault("STREAMJOIN_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "kernels"))

# Opening a join waits for its kernels, so that tests run the compiled ones, and do not start a process each. Tests of
# the other way set the variable themselves.
os.environ.setdefault("STREAMJOIN_COMPILE", "wait")

# The first example of a predicate compiles it, and other programs may use the cores, so no test has a deadline.
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# A check of a change must not fail because of an unrelated random example.
settings.register_profile("fixed", settings.get_profile("explore"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "explore"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share the Spark session in one worker, so that only one Spark starts."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
