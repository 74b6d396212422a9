"""An engine in a child process: the protocol, limits on time and memory, and how a process ended."""
