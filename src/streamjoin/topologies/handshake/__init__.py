"""Handshake join and low-latency handshake join: chains of nodes."""
