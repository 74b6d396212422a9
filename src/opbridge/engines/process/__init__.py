"""An engine in a child process: the protocol, limits on time and memory, and the ways a process can end."""
