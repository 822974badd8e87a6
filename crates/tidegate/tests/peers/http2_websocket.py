"""Tests WebSocket over HTTP/2 (RFC 8441) with the libraries h2 and wsproto: http2_websocket.py URL PATH... [--unended]

Prints one line for each path, whose service sends messages back. With --unended, the client does not wait for the end of
a stream after the closing handshake: hypercorn ends it only when the client does.
"""
import os
import socket
import ssl
import sys
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events
import h2.settings
import wsproto
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

url = urlsplit(sys.argv[1])


class Session:
    """A connection of HTTP/2."""

    def __init__(self):
        self.socket = socket.create_connection((url.hostname, url.port), 60)
        if url.scheme == "https":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.status, self.data, self.ended = {}, {}, set()
        # RFC 8441 section 3: the server must announce the extended CONNECT.
        setting = h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL
        self.run(lambda: self.h2.remote_settings.get(setting) == 1)

    def run(self, done):
        """Sends and receives until the condition holds."""
        while True:
            self.socket.sendall(self.h2.data_to_send())
            if done():
                return
            received = self.socket.recv(1 << 16)
            assert received, "the server closed the connection"
            for event in self.h2.receive_data(received):
                stream = getattr(event, "stream_id", None)
                if isinstance(event, h2.events.ResponseReceived):
                    self.status[stream] = dict(event.headers)
                elif isinstance(event, h2.events.DataReceived):
                    self.data[stream] += event.data
                    self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
                elif isinstance(event, h2.events.StreamEnded):
                    self.ended.add(stream)
                elif isinstance(event, h2.events.StreamReset):
                    assert event.error_code == 0, event
                    self.ended.add(stream)


class WebSocket:
    """A WebSocket on a stream."""

    def __init__(self, session, path):
        self.session, self.codec = session, wsproto.Connection(wsproto.ConnectionType.CLIENT)
        self.stream = session.h2.get_next_available_stream_id()
        session.data[self.stream] = bytearray()
        fields = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", url.scheme), (":path", path),
                  (":authority", url.netloc), ("sec-websocket-version", "13"), ("origin", f"{url.scheme}://{url.netloc}")]
        session.h2.send_headers(self.stream, fields)
        session.run(lambda: self.stream in session.status)
        head = session.status[self.stream]
        assert head[":status"] == "200" and "sec-websocket-accept" not in head, head

    def send(self, event):
        data, h2 = self.codec.send(event), self.session.h2
        while data:
            size = min(len(data), h2.local_flow_control_window(self.stream), h2.max_outbound_frame_size)
            if size:
                h2.send_data(self.stream, data[:size])
                data = data[size:]
            self.session.run(lambda: not data or h2.local_flow_control_window(self.stream))

    def receive(self):
        """The next event; messages are joined."""
        joined = None
        while True:
            for event in self.codec.events():
                if not isinstance(event, (TextMessage, BytesMessage)):
                    return event
                joined = event.data if joined is None else joined + event.data
                if event.message_finished:
                    return joined
            data = self.session.data[self.stream]
            self.session.run(lambda: data or self.stream in self.session.ended)
            assert data, "the stream ended"
            self.codec.receive_data(bytes(data))
            data.clear()


session = Session()
waits = "--unended" not in sys.argv
for path in [argument for argument in sys.argv[2:] if argument != "--unended"]:
    sockets = [WebSocket(session, path) for _ in range(20)]
    for at, one in enumerate(sockets):
        one.send(TextMessage(f"grüße {at}"))
    for at, one in enumerate(sockets):
        assert one.receive() == f"grüße {at}"
    large = os.urandom(1 << 20)
    sockets[0].send(BytesMessage(large))
    assert sockets[0].receive() == large
    sockets[1].send(Ping(b"are you there"))
    assert sockets[1].receive() == Pong(bytearray(b"are you there"))
    for one in sockets:
        one.send(CloseConnection(1000))
        event = one.receive()
        assert isinstance(event, CloseConnection) and event.code == 1000, event
        if waits:
            session.run(lambda: one.stream in session.ended)
    print(path)
