"""`columns=`: which columns a result has, and what they are called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj

TRADES = pa.schema({"ts": pa.int64(), "price": pa.float64(), "size": pa.int32(), "note": pa.string()})
QUOTES = pa.schema({"ts": pa.int64(), "price": pa.float64(), "bid": pa.float32(), "a.b": pa.bool_()})
ON = "left.price < right.price"


def spec(columns: Any, **options: Any) -> sj.JoinSpec:
    return sj.JoinSpec(TRADES, QUOTES, ON, 5, "ts", "ts", columns=columns, **options)


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        (None, "ts price size note ts_right price_right bid a.b"),
        (["bid", "size"], "bid size"),
        (["right.price", "left.price"], "price_right price"),
        (["right.price"], "price_right"),
        (["right.price AS ask", "left.price as Paid"], "ask Paid"),
        (["bid AS x", "bid AS y"], "x y"),
        (["a.b", 'RIGHT."a.b" AS "b c"'], "a.b|b c"),
        ({"ask": "right.price", "size": "size"}, "ask size"),
        ((("ask", "right.price"), ("z", "left.size")), "ask z"),
    ],
    ids=str,
)
def test_columns_are_those_that_are_named_in_that_order(columns, wanted):
    assert spec(columns).schema.names == wanted.split("|" if "|" in wanted else " ")


def test_columns_keep_their_types_and_how_says_which_may_be_null():
    quotes = pa.schema([field.with_nullable(False) for field in QUOTES])
    hows: list[tuple[Any, bool]] = [("inner", False), ("left", True)]
    for how, nullable in hows:
        made = sj.JoinSpec(TRADES, quotes, ON, 5, "ts", "ts", how=how, columns=["bid"])
        assert made.schema == pa.schema([pa.field("bid", pa.float32(), nullable=nullable)])


def test_a_spec_keeps_columns_as_pairs_that_can_be_compared_hashed_and_given_again():
    made = spec({"ask": "right.price", "size": "size"})
    assert made.columns == (("ask", "right.price"), ("size", "left.size"))
    same = spec(["right.price AS ask", "size"])
    assert same == made
    assert hash(same) == hash(made)
    assert replace(made, how="left").columns == made.columns
    assert "columns=(('ask', 'right.price'), ('size', 'left.size'))" in repr(made)


def test_a_spec_says_which_columns_a_join_needs():
    made = sj.JoinSpec(
        TRADES, QUOTES, "left.size < 3", 5, "ts", "ts", keep=sj.Nearest("left.price - right.bid"), right_tie="a.b",
        columns=["note"],
    )  # fmt: skip
    assert made.needed["left"].names == TRADES.names
    assert made.needed["right"].names == ["ts", "bid", "a.b"]
    narrowed = made.narrowed()
    assert narrowed.right.names == ["ts", "bid", "a.b"]
    assert narrowed.schema == made.schema
    assert spec(None).needed == {"left": TRADES, "right": QUOTES}
    assert spec(None, how="semi").needed["right"].names == ["ts", "price"]


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_semi_and_anti_joins_choose_among_the_columns_of_left(how):
    assert spec(["ts", "left.price AS p"], how=how).schema.names == ["ts", "p"]
    with pytest.raises(
        sj.SpecError, match=f"'bid', a column of right, but how='{how}' returns only left's columns"
    ):
        spec(["bid"], how=how)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("price", ["columns is 'price'", "give a list of names such as"]),
        (7, ["columns is 7", "give a list"]),
        ({"price"}, ["columns is {'price'}", "give a list"]),
        ([], ["columns is empty", "leave columns out for all"]),
        ({}, ["columns is empty"]),
        ([7], ["columns has 7", "give a list"]),
        ([("price",)], ["columns has ('price',)"]),
        ({"": "bid"}, ["columns has ('', 'bid')"]),
        (
            ["pryce"],
            ["columns has 'pryce', which is not a column", "left has ['ts',", "did you mean 'price'?"],
        ),
        (["left.pryce"], ["'left.pryce', which is not a column", "did you mean 'price'?"]),
        (["left.bid"], ["'left.bid', which is not a column", "did you mean 'bid'?"]),
        (["price_right"], ["'price_right', which is not a column", "did you mean 'right.price'?"]),
        (["bd AS b"], ["'bd', which is not a column", "did you mean 'bid'?"]),
        ({"size": "units"}, ["'units', which is not a column", "so write {'units': 'size'}"]),
        (["price"], ["'price', a column of both sides", "write 'left.price' or 'right.price'"]),
        (["bid", "bid"], ["the name 'bid' to right.bid and to right.bid", "write 'right.bid AS ...'"]),
        (["size AS x", "note AS x"], ["the name 'x' to left.size and to left.note", "'left.note AS ...'"]),
    ],
    ids=str,
)
def test_columns_that_mean_nothing_are_refused(columns, told):
    with pytest.raises(sj.SpecError) as caught:
        spec(columns)
    assert caught.value.field == "columns"
    for part in told:
        assert part in str(caught.value)


def test_a_suffix_that_is_taken_matters_only_to_chosen_columns():
    left = pa.schema({"ts": pa.int64(), "ts_right": pa.int64()})
    right = pa.schema({"ts": pa.int64()})
    with pytest.raises(sj.SpecError, match="choose another suffix"):
        sj.JoinSpec(left, right, "TRUE", 5, "ts", "ts")
    assert sj.JoinSpec(left, right, "TRUE", 5, "ts", "ts", columns=["ts_right"]).schema.names == ["ts_right"]
    with pytest.raises(sj.SpecError, match=r"the name 'ts_right' to left\.ts_right and to right\.ts"):
        sj.JoinSpec(left, right, "TRUE", 5, "ts", "ts", columns=["ts_right", "right.ts"])
