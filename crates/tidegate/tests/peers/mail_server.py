"""A mail server for one message after another: it speaks first, as every mail server does. Prints its address, and
answers DATA with the number of bytes that it received."""
import socketserver


class Mail(socketserver.StreamRequestHandler):
    def say(self, line):
        self.wfile.write(line.encode() + b"\r\n")

    def handle(self):
        self.say("220 mail.example ESMTP")
        for line in self.rfile:
            verb = line[:4].upper()
            if verb == b"DATA":
                self.say("354 go ahead")
                count = 0
                for content in self.rfile:
                    if content == b".\r\n":
                        break
                    count += len(content)
                self.say(f"250 {count} bytes")
            elif verb == b"QUIT":
                return self.say("221 bye")
            else:
                self.say("250 mail.example")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


with Server(("127.0.0.1", 0), Mail) as server:
    print("%s:%d" % server.server_address, flush=True)
    server.serve_forever()
