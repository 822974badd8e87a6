"""The application behind the proxy: Python's own http.server, HTTP/1.1, one thread for each connection.

Prints its listening address: a free TCP port, or the unix socket path given as the argument.
"""
import http.server
import os
import socket
import socketserver
import sys
import time
import zlib


class Application(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536

    def handle_expect_100(self):
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    def pieces(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            left = int(self.headers.get("Content-Length", "0"))
            while left:
                piece = self.rfile.read(min(left, 65536))
                if not piece:
                    raise ConnectionError("cut")
                left -= len(piece)
                yield piece

    def framing(self):
        return "chunked" if self.headers.get("Transfer-Encoding") else "length"

    def answer(self, body, content_type="text/plain", status=200, fields=()):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == "/hello":
            self.answer(b"hello from the origin\n")
        elif path == "/head":
            self.answer(str(self.headers).encode())
        elif path == "/wait":
            # Creates the file "asked", then answers as soon as the file "answer" exists.
            open(os.path.join(sys.path[0], "asked"), "w").close()
            while not os.path.exists(os.path.join(sys.path[0], "answer")):
                time.sleep(0.01)
            self.answer(b"waited\n")
        elif path == "/until-close":
            # HTTP/1.0 without a length: the end of the connection is the end of the body.
            self.protocol_version = "HTTP/1.0"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"0123456789abcdef" * 65536)
            self.close_connection = True
        elif path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(b"only this")
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        else:
            self.answer(b"nothing here\n", status=404)

    do_HEAD = do_GET

    def do_POST(self):
        if self.path.startswith("/echo"):
            self.echo()
        elif self.path == "/count":
            size, check = 0, 0
            for piece in self.pieces():
                size, check = size + len(piece), zlib.crc32(piece, check)
            self.answer(f"{size} {check:08x} {self.framing()}\n".encode())
        elif self.path == "/refuse":
            # Answers during the upload, then reads and discards the rest (RFC 9112 section 9.6).
            self.answer(b"too much for me\n", status=413, fields=[("Connection", "close")])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self.close_connection = True
            try:
                while self.connection.recv(1 << 20):
                    pass
            except ConnectionError:
                pass  # the client need not send the rest
        else:
            self.answer(b"nothing here\n", status=404)

    do_PUT = do_POST

    def echo(self):
        body = b"".join(self.pieces())
        framing = [("X-Request-Framing", self.framing())]
        if not self.path.endswith("?chunked"):
            return self.answer(body, "application/octet-stream", fields=framing)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in framing:
            self.send_header(name, value)
        self.end_headers()
        for begin in range(0, len(body), 10007):
            piece = body[begin:begin + 10007]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


class Quiet:
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, *_):
        pass  # clients that disconnect are part of the tests


class TcpServer(Quiet, socketserver.ThreadingTCPServer):
    pass


class UnixServer(Quiet, socketserver.ThreadingUnixStreamServer):
    pass


class UnixApplication(Application):
    def address_string(self):
        return "unix"


if len(sys.argv) > 1:
    server = UnixServer(sys.argv[1], UnixApplication)
    print("unix:" + sys.argv[1], flush=True)
else:
    server = TcpServer(("127.0.0.1", 0), Application)
    print("%s:%d" % server.server_address, flush=True)
server.serve_forever()
