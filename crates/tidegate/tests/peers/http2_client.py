"""Tests the server at the URL given as the argument with the library h2; prints one line for each test that passes."""
import os
import socket
import ssl
import sys
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

TIMEOUT = 60
url = urlsplit(sys.argv[1])


class Session:
    """A connection whose requests run until a condition holds."""

    def __init__(self):
        self.socket = socket.create_connection((url.hostname, url.port), TIMEOUT)
        if url.scheme == "https":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
            assert self.socket.selected_alpn_protocol() == "h2"
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        # Of the connection only: a stream that is not read stops at 65,535 bytes.
        self.h2.increment_flow_control_window(1 << 28)
        self.status, self.bodies, self.ended, self.resets = {}, {}, set(), {}
        # What is left to send, and the streams whose data is not acknowledged.
        self.uploads, self.unread, self.held = {}, {}, set()

    def request(self, method, path, body=None, held=False):
        stream = self.h2.get_next_available_stream_id()
        self.bodies[stream], self.unread[stream] = bytearray(), 0
        if held:
            self.held.add(stream)
        fields = [(":method", method), (":scheme", url.scheme), (":authority", url.netloc), (":path", path)]
        self.h2.send_headers(stream, fields, end_stream=body is None)
        if body is not None:
            self.uploads[stream] = body
        return stream

    def send_uploads(self):
        for stream, body in list(self.uploads.items()):
            while size := min(len(body), self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size):
                self.h2.send_data(stream, body[:size])
                body = body[size:]
            self.uploads[stream] = body
            if not body:
                self.h2.end_stream(stream)
                del self.uploads[stream]

    def handle(self, event):
        stream = getattr(event, "stream_id", None)
        if isinstance(event, h2.events.ResponseReceived):
            self.status[stream] = dict(event.headers)[":status"]
        elif isinstance(event, h2.events.DataReceived):
            self.bodies[stream] += event.data
            if stream in self.held:
                self.unread[stream] += event.flow_controlled_length
            else:
                self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
        elif isinstance(event, h2.events.StreamEnded):
            self.ended.add(stream)
        elif isinstance(event, h2.events.StreamReset):
            self.resets[stream] = event.error_code
            self.uploads.pop(stream, None)
        else:
            assert not isinstance(event, h2.events.ConnectionTerminated), event

    def run(self, done):
        """Sends and receives until the condition holds."""
        while True:
            self.send_uploads()
            self.socket.sendall(self.h2.data_to_send())
            if done():
                return
            received = self.socket.recv(1 << 16)
            assert received, "the server closed the connection"
            for event in self.h2.receive_data(received):
                self.handle(event)

    def whole(self, stream):
        """The body of a response with status 200."""
        self.run(lambda: stream in self.ended or stream in self.resets)
        # A server that needs no more of the request resets the stream after its response (RFC 9113 section 8.1).
        assert stream in self.ended and not self.resets.get(stream), self.resets[stream]
        assert self.status[stream] == "200", self.status[stream]
        return bytes(self.bodies[stream])

    def fetch(self, *request):
        return self.whole(self.request(*request))

    def read(self, stream):
        """Reads a stream that was held."""
        self.held.discard(stream)
        self.h2.acknowledge_received_data(self.unread[stream], stream)
        return self.whole(stream)


RESPONDED, HELLO = b"responded", b"hello from the origin\n"
session = Session()
assert session.fetch("GET", "/respond") == RESPONDED
assert session.fetch("GET", "/hello") == HELLO
assert len(session.fetch("GET", "/synthetic?s=100000")) == 100000
print("get")

sent = os.urandom(1 << 20)
assert session.fetch("POST", "/respond", sent) == RESPONDED
assert session.fetch("POST", "/echo", sent) == sent
assert len(session.fetch("POST", "/synthetic?s=1000", sent)) == 1000
print("post")

for method, path, wanted in [
    ("GET", "/respond", lambda at: RESPONDED),
    ("GET", "/synthetic?s=50000", lambda at: bytes(50000)),
    ("POST", "/echo", lambda at: sent[at:10000 + 2 * at]),
]:
    bodies = [wanted(at) if method == "POST" else None for at in range(100)]
    streams = [session.request(method, path, body) for body in bodies]
    for at, stream in enumerate(streams):
        body = session.whole(stream)
        assert len(body) == len(wanted(at)) if "synthetic" in path else body == wanted(at), (path, at, len(body))
print("hundred")

# Streams that are not read hold up no other ones of their connection.
for path in ["/synthetic?s=2m", "/big"] * 5:
    stream = session.request("GET", path, None, True)
    # A server may wait for more than a small rest of the window.
    session.run(lambda: session.unread[stream] > 65535 - 1024)
    for _ in range(5):
        assert session.fetch("GET", "/respond") == RESPONDED
        assert session.fetch("POST", "/echo", sent[:100000]) == sent[:100000]
    assert len(session.read(stream)) == {"/big": 20 << 20}.get(path, 2 << 20)
print("slow")

for at in range(20):
    stream = session.request("GET", ["/synthetic?s=20m", "/big"][at % 2])
    session.run(lambda: session.bodies[stream])
    session.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
    assert session.fetch("GET", "/hello") == HELLO
print("cancel")

for path in ["/echo", "/respond", "/synthetic?s=10&B=1m"] * 3:
    stream = session.request("POST", path, sent)
    session.run(lambda: len(session.uploads.get(stream, b"")) < len(sent))
    if stream not in session.ended:
        session.uploads.pop(stream, None)
        session.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
    assert session.fetch("GET", "/hello") == HELLO
print("cancel upload")

# Windows that are opened after the requests.
session.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
streams = [session.request("GET", path) for path in ["/respond", "/hello", "/synthetic?s=10"]]
session.run(lambda: all(stream in session.status for stream in streams))
session.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 65535})
assert [len(session.whole(stream)) for stream in streams] == [len(RESPONDED), len(HELLO), 10]
print("closed windows")

session.h2.close_connection()
session.socket.sendall(session.h2.data_to_send())
while session.socket.recv(1 << 16):
    pass
print("close")
