"""Servers that leave part of a request unread, each started as its users start it.

The first argument names the server. Every response is "METHOD PATH" of the request that the server read;
/seen lists the paths so far.
"""

import socket
import sys
import threading
import warnings

warnings.simplefilter("ignore")
seen = set()


def application(environ, start_response):
    seen.add(environ["PATH_INFO"])
    text = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
    if environ["PATH_INFO"] == "/seen":
        text = "\n".join(sorted(seen))
    body = text.encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


def reading_application(environ, start_response):
    """Reads the body first, so that only the trailers stay unread."""
    body = environ["wsgi.input"]
    while body.read(4096):
        pass
    return application(environ, start_response)


def announce(port):
    print(f"127.0.0.1:{port}", flush=True)


def serve_cheroot(app=reading_application):
    from cheroot.wsgi import Server

    server = Server(("127.0.0.1", 0), app, numthreads=16)
    server.prepare()
    announce(server.bind_addr[1])
    server.serve()


def serve_gevent():
    from gevent.pywsgi import WSGIServer

    server = WSGIServer(("127.0.0.1", 0), reading_application, log=None, error_log=None)
    server.start()
    announce(server.server_port)
    server.serve_forever()


def serve_eventlet():
    import eventlet
    from eventlet import wsgi

    listener = eventlet.listen(("127.0.0.1", 0))
    announce(listener.getsockname()[1])
    wsgi.server(listener, reading_application, log_output=False)


def serve_http_server():
    """The standard library's server with persistent connections; its handlers ignore every body."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            seen.add(self.path)
            text = "\n".join(sorted(seen)) if self.path == "/seen" else f"{self.command} {self.path}"
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = do_OPTIONS = do_PROPFIND = answer

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    announce(server.server_address[1])
    server.serve_forever()


{
    "cheroot": serve_cheroot,
    "cheroot-unread": lambda: serve_cheroot(application),
    "gevent": serve_gevent,
    "eventlet": serve_eventlet,
    "http.server": serve_http_server,
}[sys.argv[1]]()
