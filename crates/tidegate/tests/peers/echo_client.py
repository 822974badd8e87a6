"""Tests the action `echo` at the URL given as the first argument, in the process given as the second one, with the library
websocket-client; prints one line for each test that passes."""
import os
import signal
import sys

import websocket
from websocket import ABNF

url, pid = sys.argv[1], int(sys.argv[2])
TIMEOUT = 30


def connect(**options):
    return websocket.create_connection(url, timeout=TIMEOUT, **options)


def close_code(connection):
    """The code of the server's Close frame, after which the connection must end."""
    frame = connection.recv_frame()
    assert frame.opcode == ABNF.OPCODE_CLOSE, frame
    code = int.from_bytes(frame.data[:2], "big")
    try:
        connection.sock.recv(1)
    except ConnectionResetError:
        pass
    return code


connection = connect(subprotocols=["v9", "chat"])
assert connection.getsubprotocol() == "chat"
connection.close(status=3000)
print("subprotocol")

connection = connect()
text = "gr\u00fc\u00dfe".encode()
for size in [1, 2, 3, len(text)]:
    pieces = [text[at:at + size] for at in range(0, len(text), size)]
    for index, piece in enumerate(pieces):
        opcode = ABNF.OPCODE_CONT if index else ABNF.OPCODE_TEXT
        connection.send_frame(ABNF.create_frame(piece, opcode, int(index == len(pieces) - 1)))
        connection.ping(b"between")
        assert connection.recv_frame().opcode == (
            ABNF.OPCODE_PONG if index < len(pieces) - 1 else ABNF.OPCODE_TEXT
        )
    assert connection.recv_frame().opcode == ABNF.OPCODE_PONG
for size in [125, 126, 65535, 65536, 1 << 20]:
    data = os.urandom(size)
    connection.send_binary(data)
    assert connection.recv() == data
connection.close()
print("fragments")

for code, frame in [
    (1002, b"\x81\x01x"),  # not masked
    (1002, b"\x83\x80\0\0\0\0"),  # a reserved opcode
    (1002, b"\xc1\x80\0\0\0\0"),  # compressed, without compression
    (1002, b"\x80\x80\0\0\0\0"),  # a continuation of nothing
    (1002, b"\x09\x80\0\0\0\0"),  # a fragmented Ping
    (1002, b"\x88\x81\0\0\0\0x"),  # half a close code
    (1007, b"\x81\x82\0\0\0\0\xc3\x28"),  # not UTF-8
    (1007, b"\x88\x83\0\0\0\0\x03\xe8\xff"),  # a reason that is not UTF-8
    (1009, b"\x82\xff\0\0\0\0\0\x80\0\x01\0\0\0\0"),  # 8 MiB and a byte
    (1000, b"\x88\x82\0\0\0\0\x03\xe8"),
    (4999, b"\x88\x82\0\0\0\0\x13\x87"),
]:
    connection = connect()
    connection.sock.sendall(frame)
    assert close_code(connection) == code, (code, frame)
print("faults")

try:
    connect(origin="https://evil.example")
except websocket.WebSocketBadStatusException as refusal:
    assert refusal.status_code == 403, refusal
else:
    raise AssertionError("a foreign page was accepted")
print("origin")

connections = [connect() for _ in range(20)]
os.kill(pid, signal.SIGTERM)
for connection in connections:
    frame = connection.recv_frame()
    assert frame.opcode == ABNF.OPCODE_CLOSE and frame.data[:2] == b"\x03\xe9", frame
    connection.send_close(1001)
    assert connection.sock.recv(1) == b""
print("stop")
