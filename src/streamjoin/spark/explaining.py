"""How the joins in a DataFrame will run, as text."""

from __future__ import annotations

from pyspark.sql import DataFrame

from streamjoin.plan.explain import laid_out, plan_lines
from streamjoin.spark.built import tasks_in


def explain_joins(joined: DataFrame) -> str:
    """How the joins of a DataFrame will run, and why: index, partitioning, workers. Runs nothing.

    `joined`: what `window_join` returned in this process, or what was made of it.

    Example:
        >>> print(explain(window_join(left, right, on, window="15 minutes", ...)))  # doctest: +SKIP
    """
    return "\n\n".join(laid_out(plan_lines(task.plan())) for task in tasks_in(joined))
