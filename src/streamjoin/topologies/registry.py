"""The topologies by name. Each is imported on first use."""

from __future__ import annotations

from streamjoin.lazy import LazyRegistry
from streamjoin.topologies.protocol import MakeTopology

TOPOLOGY_CLASSES: LazyRegistry[MakeTopology] = LazyRegistry(
    three_step="streamjoin.topologies.three_step:ThreeStep",
    handshake="streamjoin.topologies.handshake.handshake:Handshake",
    low_latency_handshake="streamjoin.topologies.handshake.low_latency:LowLatencyHandshake",
    panjoin="streamjoin.topologies.panjoin.panjoin:PanJoin",
    scalejoin="streamjoin.topologies.scalejoin.scalejoin:ScaleJoin",
    celljoin="streamjoin.topologies.celljoin:CellJoin",
)
