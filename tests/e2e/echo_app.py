# SPDX-License-Identifier: Apache-2.0
"""In place of Python with TensorBoard ($HOPYARD_PYTHON): a small app behind the page's proxy that shows what reaches it.

Called as `-c CODE SOCKET …`. Below its prefix:
    echo    the request as it arrived: {"head": […], "body": its size, "sum": its SHA-256}
    raw     the reply is the decoded parameter of the query, byte by byte
    big     as many bytes as the query says; with "chunked," in front in chunks
    wait    replies when the file that the query names exists; `stall` never reads the body
    websocket  one that a browser accepts
    socket  a "WebSocket": sends back what it receives; `flood` sends until the browser stops reading
    die     ends without a reply
"""
import base64
import hashlib
import json
import os
import socket
import socketserver
import sys
import time
from urllib.parse import unquote_to_bytes

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
WEBSOCKET_ID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        head = []
        while line := self.rfile.readline().rstrip(b"\r\n"):
            head.append(line.decode("latin-1"))
        if not head:  # a check whether the app listens
            return
        path, _, query = head[0].split(" ")[1].partition("?")
        self.fields = dict(line.lower().split(": ", 1) for line in head[1:])
        self.head = head
        getattr(self, "do_" + path.rsplit("/", 1)[1], self.do_echo)(query)

    def reply(self, body: bytes) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)

    def do_echo(self, _: str) -> None:
        total, left = hashlib.sha256(), int(self.fields.get("content-length", 0))
        size = left
        while left and (part := self.rfile.read(min(left, 1 << 16))):
            total.update(part)
            left -= len(part)
        self.reply(json.dumps({"head": self.head, "body": size - left, "sum": total.hexdigest()}).encode())

    def do_raw(self, query: str) -> None:
        self.wfile.write(unquote_to_bytes(query))

    def do_big(self, query: str) -> None:
        kind, _, size = query.rpartition(",")
        part = b"x" * (1 << 16)
        head = b"Transfer-Encoding: chunked" if kind else b"Content-Length: %d" % int(size)
        self.wfile.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
        for _ in range(int(size) // len(part)):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) if kind else part)
        if kind:
            self.wfile.write(b"0\r\n\r\n")

    def do_wait(self, query: str) -> None:
        while not os.path.exists(query):
            time.sleep(0.02)
        self.reply(b"waited")

    do_stall = do_wait

    def do_socket(self, _: str) -> None:
        self.wfile.write(SWITCH)
        total = 0
        while part := self.connection.recv(1 << 16):
            total += len(part)
            self.wfile.write(part)
        self.wfile.write(b"received %d\n" % total)  # the browser's side has ended, this one has not

    def do_websocket(self, _: str) -> None:
        """For a browser: it opens, and ends with what the browser sends."""
        key = next(line.partition(": ")[2] for line in self.head if line.lower().startswith("sec-websocket-key: "))
        accept = base64.b64encode(hashlib.sha1((key + WEBSOCKET_ID).encode()).digest())
        self.wfile.write(SWITCH.replace(b"\r\n\r\n", b"\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"))
        self.connection.recv(1 << 16)

    def do_flood(self, query: str) -> None:
        self.wfile.write(SWITCH)
        sent = 0
        self.connection.settimeout(2)
        try:
            while True:
                sent += self.connection.send(b"y" * (1 << 16))
        except TimeoutError:
            with open(query, "w") as file:
                file.write(str(sent))

    def do_die(self, _: str) -> None:
        os._exit(3)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


if "launch()" in sys.argv[2]:
    if os.environ.get("ECHO_APP_FAILS"):
        sys.exit("first line\nValueError: this app never starts")
    with Server(sys.argv[3], Handler) as server:
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        server.serve_forever()
