"""Settings of every test: where compiled kernels are kept, and how Hypothesis searches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Kernels compiled by one run serve the next, without touching the user's own cache.
os.environ.setdefault("STREAMJOIN_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "kernels"))

# The first example of a predicate compiles it, and other programs may want the cores: no test fails for its time.
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# A check of a change must not fail for an example that has nothing to do with it.
settings.register_profile("fixed", settings.get_profile("explore"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "explore"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share the Spark session stay in one worker, so that only one Spark is started."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
