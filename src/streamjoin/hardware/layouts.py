"""Bit layouts of tuples and results, and the ports that every join circuit has."""

from __future__ import annotations

from typing import Any

from amaranth import signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.parameters import Parameters

COUNTER_WIDTH = 32


def tuple_layout(parameters: Parameters) -> data.StructLayout:
    """A tuple. If `valid` is 0, it occupies a slot of its window and joins with nothing.

    Tuples with NULL keys, empty slots, and the tuples that flush a handshake join are not valid.
    """
    key = signed(parameters.key_width) if parameters.signed else unsigned(parameters.key_width)
    return data.StructLayout({"payload": parameters.payload_width, "key": key, "valid": 1})


def result_layout(parameters: Parameters) -> data.StructLayout:
    """A result: payloads and key, 96 bits with the paper's widths. `right_key` exists only if keys can differ."""
    key = signed(parameters.key_width) if parameters.signed else unsigned(parameters.key_width)
    fields: dict[str, Any] = {
        "right_payload": parameters.payload_width,
        "left_payload": parameters.payload_width,
        "left_key": key,
    }
    return data.StructLayout(fields if parameters.predicate.is_equality else {**fields, "right_key": key})


def result(parameters: Parameters, left: Any, right: Any) -> dict[str, Any]:
    """The fields of a pair's result, to be assigned one by one."""
    fields = {"right_payload": right.payload, "left_payload": left.payload, "left_key": left.key}
    return fields if parameters.predicate.is_equality else {**fields, "right_key": right.key}


def join_members(parameters: Parameters) -> dict[str, Any]:
    """The ports of a join circuit: two tuple streams in, `lanes` result streams out, counts of refused tuples."""
    return {
        "left": In(stream.Signature(tuple_layout(parameters))),
        "right": In(stream.Signature(tuple_layout(parameters))),
        "output": Out(stream.Signature(result_layout(parameters))).array(parameters.lanes),
        "refused_left": Out(COUNTER_WIDTH),
        "refused_right": Out(COUNTER_WIDTH),
    }
