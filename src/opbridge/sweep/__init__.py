"""Runs many models through an exporter and an engine, on this machine or on a Ray cluster, and compares such runs."""
