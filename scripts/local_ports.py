"""Ports of 127.0.0.1 for the scripts: free ones, and the wait for a process that listens on one."""
import socket
import sys
import time

# How long a process may take to listen on a loaded machine.
WAIT_S = 60


def free_ports(count):
    """Ports that no process uses now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(port, process=None, log=None):
    """Waits until a process listens on `port`. Exits if `process` ends before, with the text of the file `log`."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until and (process is None or process.poll() is None):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.01)
    text = f": {open(log, encoding='utf-8').read()}" if log else ""
    sys.exit(f"no process listens on port {port}{text}")
