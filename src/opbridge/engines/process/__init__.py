"""Runs an engine in a child process: the protocol, limits on time and memory, and descriptions of crashes."""
